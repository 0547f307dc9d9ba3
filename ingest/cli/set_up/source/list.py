"""`ingest source list`: shows one line for each source."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ingest.cli.invocation import start
from ingest.cli.listing import LONGEST_ERROR, Listing
from ingest.cli.options import AsJson
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_duration
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.state.source_states import SourceState
    from ingest.settings import Settings

_UNNAMED = "(unnamed)"


def list_(*, as_json: AsJson = False) -> None:
    """Show the state of each source, one line each.

    It shows queue, quota and activity, and changes nothing.

    Waiting orders are not yet delivered to a worker. Pending orders are delivered and not yet stored. The lag is the age of the oldest
    order that is not yet stored.

    Examples:
    `ingest source list` shows a table.

    `ingest source list --json | jq -r 'select(.activity == "circuit open") | .source'` lists the sources whose external
    API is out of order. With `--json`, each line is a JSON object.
    """
    from ingest.operations.backends import Backends
    from ingest.operations.state.source_states import ListedSource, read_states
    from ingest.settings.source_file import source_kinds, source_settings_without_secrets
    from ingest.sources.from_settings import quota_name_of

    settings = start()
    sources, kinds = source_settings_without_secrets(settings), source_kinds(settings)
    listed = [
        ListedSource(name, Backends.of(each), quota_name_of(each), each.order_list is not None)
        for name, each in sources.items()
    ]
    states = run_interruptible(read_states(listed))
    _listing(sources, kinds).show(states, as_json=as_json)


def _listing(sources: "Mapping[str, Settings]", kinds: Mapping[str, str]) -> "Listing[SourceState]":
    def as_object(state: "SourceState") -> dict[str, Any]:
        return asdict(state) | {
            "id_problems": state.queue.id_problems,
            "poll": _poll(state),
            "kind": kinds.get(state.source),
            "quota": _quota(sources[state.source]),
        }

    def quota(state: "SourceState") -> str:
        return ", ".join(_limits(_quota(sources[state.source]))) or "-"

    kind: dict[str, Callable[[SourceState], str]] = {"kind": lambda state: kinds.get(state.source, "-")}
    return Listing(
        {
            "source": lambda state: state.source or _UNNAMED,
            **(kind if kinds else {}),
            "waiting": lambda state: "unknown" if state.queue.depth is None else f"{state.queue.depth:,}",
            "pending": lambda state: f"{state.queue.pending:,}",
            "retries": lambda state: f"{state.queue.retries:,}",
            "dead": lambda state: f"{state.queue.dead:,}",
            "lag": lambda state: "-" if state.queue.oldest_age is None else format_duration(state.queue.oldest_age),
            "workers": lambda state: f"{state.workers:,}",
            "quota": quota,
            "state": _condition,
        },
        names=2 if kinds else 1,
        facts=7 if kinds else 6,
        nothing="no sources",
        as_json=lambda state: printable_json(json.dumps(as_object(state), ensure_ascii=False)),
        below=lambda row: f"workers {row[-3]}  quota {row[-2]}  {row[-1]}",
    )


def _condition(state: "SourceState") -> str:
    condition = "; ".join([_activity(state), *state.queue.id_problems])
    poll = state.poll
    if poll is not None and poll.error:
        return f"{condition}, list not read: {printable(poll.error, LONGEST_ERROR)}"
    if poll is not None and poll.looked_at is not None:
        return f"{condition}, polled {format_duration(_age(poll.looked_at))} ago"
    return condition


def _age(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def _poll(state: "SourceState") -> dict[str, Any] | None:
    poll = state.poll
    if poll is None:
        return None
    return {
        "position": poll.position.isoformat(),
        "looked_at": None if poll.looked_at is None else poll.looked_at.isoformat(),
        "failures": poll.failures,
        "error": poll.error,
    }


def _activity(state: "SourceState") -> str:
    if state.errors:
        return f"{state.activity}: {printable('; '.join(state.errors), LONGEST_ERROR)}"
    if state.throttled_for:
        return f"{state.activity} for {format_duration(state.throttled_for)}"
    return state.activity


def _quota(settings: "Settings") -> dict[str, Any]:
    limits = {"rate": settings.upstream_rate, "concurrency": settings.upstream_concurrency}
    return {**limits, "cost": settings.upstream_cost} if settings.upstream_cost else limits


def _limits(quota: dict[str, Any]) -> Iterator[str]:
    if quota["rate"]:
        yield f"{quota['rate']:g} points/s" if "cost" in quota else f"{quota['rate']:g}/s"
    if quota["concurrency"]:
        yield f"{quota['concurrency']:,} concurrent"
