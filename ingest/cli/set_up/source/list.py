"""`ingest source list`: shows one line for each source."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer
from msgspec import to_builtins

from ingest.cli.invocation import start
from ingest.cli.listing import LONGEST_ERROR, Listing
from ingest.cli.options import AsJson
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_age, format_duration
from ingest.cli.terminal.width import broken, width_of
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.deliveries.queue_state import QueueState
    from ingest.domain.operating.polling import PollState
    from ingest.operations.state.snapshot import Snapshot, SourceSnapshot
    from ingest.settings import Settings

    Polls = Mapping[str, PollState]

_UNNAMED = "(unnamed)"


def list_(*, as_json: AsJson = False) -> None:
    """Show the state of each source, one line each.

    It shows queue, quota and state, and changes nothing. Below, a line for each server or source names the cause of an incident and
    since when it lasts.

    Waiting orders are not yet delivered to a worker. Pending orders are delivered and not yet stored. The lag is the age of the oldest
    order that is not yet stored.

    The exit code is 1 if Redis cannot be reached.

    Examples:
    `ingest source list` shows a table.

    `ingest source list --json | jq -r 'select(.condition.cannot_work) | .source'` lists the sources whose orders are not
    processed. With `--json`, each line is a JSON object.
    """
    from ingest.operations.backends import Backends
    from ingest.operations.state.snapshots import read_snapshot
    from ingest.settings.source_file import source_kinds, usable_source_settings
    from ingest.settings.source_values import values_without_secrets
    from ingest.store.polls import polls_if_available

    settings = start()
    sources, problems = usable_source_settings(settings, read=values_without_secrets)
    if not sources:
        raise ConfigError("; ".join(problems.values()))
    kinds = source_kinds(settings)
    backends = [Backends.of(each) for each in sources.values()]
    listed = [name for name, each in sources.items() if each.order_list is not None]

    async def read() -> "tuple[Snapshot, Polls]":
        polling = polls_if_available(backends[0].postgres_dsn, listed)
        return await asyncio.gather(read_snapshot(backends), polling)

    snapshot, polls = run_interruptible(read())
    found = [each for name in sources if (each := snapshot.source(name)) is not None]
    _listing(sources, kinds, polls, snapshot.at).show(found, as_json=as_json)
    if not as_json:
        notices = [printable(each.line(snapshot.at)) for each in snapshot.notices]
        notices += [
            f"{each.source or _UNNAMED}: webhooks rejected within an hour: {each.webhooks.line}"
            for each in found
            if each.webhooks is not None and each.webhooks.rejected
        ]
        with standard_output() as stream:
            stream.writelines(f"{line}\n" for line in broken(notices, width_of(sys.stdout)))
    if problems:
        raise ConfigError("; ".join(problems.values()))
    raise typer.Exit(1 if snapshot.problem else 0)


def _listing(
    sources: "Mapping[str, Settings]", kinds: Mapping[str, str], polls: "Polls", now: datetime
) -> "Listing[SourceSnapshot]":
    def as_object(each: "SourceSnapshot") -> dict[str, Any]:
        more = {"kind": kinds.get(each.source), "quota": _quota(sources[each.source])}
        return _report(each, polls.get(each.source)) | more

    def of_queue(value: "Callable[[QueueState], int | None]") -> "Callable[[SourceSnapshot], str]":
        def shown(each: "SourceSnapshot") -> str:
            count = None if each.queue is None else value(each.queue)
            return "unknown" if count is None else f"{count:,}"

        return shown

    def lag(each: "SourceSnapshot") -> str:
        age = None if each.queue is None else each.queue.oldest_age
        return "-" if age is None else format_duration(age)

    kind: dict[str, Callable[[SourceSnapshot], str]] = {"kind": lambda each: kinds.get(each.source, "-")}
    return Listing(
        {
            "source": lambda each: each.source or _UNNAMED,
            **(kind if kinds else {}),
            "waiting": of_queue(lambda queue: queue.depth),
            "pending": of_queue(lambda queue: queue.pending),
            "retries": of_queue(lambda queue: queue.retries),
            "dead": of_queue(lambda queue: queue.dead),
            "lag": lag,
            "workers": lambda each: f"{each.workers:,}",
            "quota": lambda each: ", ".join(_limits(_quota(sources[each.source]))) or "-",
            "state": lambda each: _condition(each, polls.get(each.source), now),
        },
        names=2 if kinds else 1,
        facts=7 if kinds else 6,
        nothing="no sources",
        as_json=lambda each: printable_json(json.dumps(as_object(each), ensure_ascii=False)),
        below=lambda row: f"workers {row[-3]}  quota {row[-2]}  {row[-1]}",
    )


def _report(source: "SourceSnapshot", poll: "PollState | None") -> dict[str, Any]:
    from ingest.operations.state.notices import condition_as_object

    queue = source.queue
    return {
        "source": source.source,
        "condition": condition_as_object(source.condition),
        "queue": None if queue is None else asdict(queue),
        "workers": source.workers,
        "poll": _poll(poll),
        "webhooks": None if source.webhooks is None else to_builtins(source.webhooks),
        "id_problems": [] if queue is None else queue.id_problems,
    }


def _condition(source: "SourceSnapshot", poll: "PollState | None", now: datetime) -> str:
    condition = "; ".join([source.state.text, *(source.queue.id_problems if source.queue is not None else ())])
    if source.webhooks is not None and source.webhooks.accepted_at is not None:
        condition += f", webhook {format_age(datetime.fromtimestamp(source.webhooks.accepted_at, UTC), now)}"
    if poll is not None and poll.error:
        return f"{condition}, list not read: {printable(poll.error, LONGEST_ERROR)}"
    if poll is not None and poll.looked_at is not None:
        return f"{condition}, polled {format_age(poll.looked_at, now)}"
    return condition


def _poll(poll: "PollState | None") -> dict[str, Any] | None:
    if poll is None:
        return None
    return {
        "position": poll.position.isoformat(),
        "looked_at": None if poll.looked_at is None else poll.looked_at.isoformat(),
        "failures": poll.failures,
        "error": poll.error,
    }


def _quota(settings: "Settings") -> dict[str, Any]:
    limits = {"rate": settings.upstream_rate, "concurrency": settings.upstream_concurrency}
    return {**limits, "cost": settings.upstream_cost} if settings.upstream_cost else limits


def _limits(quota: dict[str, Any]) -> Iterator[str]:
    if quota["rate"]:
        yield f"{quota['rate']:g} points/s" if "cost" in quota else f"{quota['rate']:g}/s"
    if quota["concurrency"]:
        yield f"{quota['concurrency']:,} concurrent"
