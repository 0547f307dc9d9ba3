"""Changes selected dead letters or retries, from the confirmation to the report."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ingest.cli.invocation import backends_to_change, is_confirmed, say
from ingest.cli.options import Changing
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import printable
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.backfill import JobState
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ingest.domain.operating.jobs import JobRequest
    from ingest.operations.backends import Backends


@dataclass(frozen=True, slots=True)
class Action:
    """A change of selected entries, and its words: `would {verb} 3 {nouns}{end}`, `{done} 3 {nouns}{end}`.

    Attributes:
        noun: names one entry.
        nouns: names several.
        key: of the number of changed entries in JSON.
        page: entries that one step changes.
        survey: finds the entries of a source. The result has their `count`, their `reasons`, and `missing`, the IDs without
            an entry.
        apply: changes the entries that a survey of this source has found, and returns how many. Its callbacks get the number
            of changed entries with the number of all that are examined, and the reason for a wait.
    """

    verb: str
    done: str
    key: str
    noun: str
    nouns: str
    page: int
    survey: Callable[["Backends", ProgressDisplay], Awaitable[Any]]
    apply: Callable[["Backends", Any, Callable[[int, int], None], Callable[[str], None]], Awaitable[int]]
    end: str = ""

    def counted(self, count: int) -> str:
        """A number of entries: `1 retry`, `2,000 retries`."""
        return f"{count:,} {self.noun if count == 1 else self.nouns}"


def carry_out(action: Action, options: Changing) -> int:
    """Count the matches, ask for confirmation, make the change, and report. Return the exit code.

    Raises:
        ConfigError: a source has to be named, or confirmation is needed and there is no terminal. Then nothing is changed.
    """
    sources = backends_to_change(options.sources, dry_run=options.dry_run)
    found = run_interruptible(_survey(action, sources))
    missing = frozenset.intersection(*(each.missing for each in found.values()))
    for order_id in sorted(missing):
        say(f"no {action.noun} for {printable(order_id)}")
    matched, done = sum(each.count for each in found.values()), dict.fromkeys(found, 0)
    end = _of_source(found) + action.end
    change = f"{action.verb} {action.counted(matched)}{end}"
    if matched and not options.dry_run:
        if matched > 1 and not options.yes and not is_confirmed(f"Would {change}: {_matches(found)}.", change=change):
            say("nothing was changed")
            return 1
        done = run_interruptible(_apply(action, sources, found))
    gone = 0 if options.dry_run else matched - sum(done.values())
    if options.as_json:
        report = {"matched": matched, action.key: sum(done.values()), "gone": gone, "reasons": _reasons(found)}
        if UNNAMED not in found:
            report["sources"] = [
                {"source": name, "matched": each.count, action.key: done[name], "reasons": dict(each.reasons)}
                for name, each in found.items()
            ]
        typer.echo(json.dumps(report | {"missing": sorted(missing), "dry_run": options.dry_run}))
    elif not matched:
        typer.echo(f"no {action.noun} matches")
    elif options.dry_run:
        typer.echo(f"would {change}: {_matches(found)}")
    else:
        note = f"; {gone:,} were already gone" if gone else f": {_matches(found)}"
        typer.echo(f"{action.done} {action.counted(sum(done.values()))}{end}{note}")
    return 1 if missing else 0


async def _survey(action: Action, sources: Mapping[str, "Backends"]) -> dict[str, Any]:
    with ProgressDisplay("searching") as display:
        return {name: await action.survey(backends, display) for name, backends in sources.items()}


async def _apply(action: Action, sources: Mapping[str, "Backends"], found: Mapping[str, Any]) -> dict[str, int]:
    done = dict.fromkeys(found, 0)
    with ProgressDisplay(action.verb, total := sum(each.count for each in found.values())) as display:
        for name in [name for name, each in found.items() if each.count]:
            before = sum(done.values())

            def on_progress(so_far: int, examined: int, name: str = name, before: int = before) -> None:
                done[name] = so_far
                display.update(before + examined)

            try:
                done[name] = await action.apply(sources[name], found[name], on_progress, display.say)
            except (asyncio.CancelledError, QueueUnavailable):
                display.say(
                    f"stopped after {action.counted(sum(done.values()))} of {total:,};"
                    f" up to {action.page} more may have been changed as well"
                )
                raise
    return done


async def applied(
    servers: "Backends",
    request: "Callable[[Redis], Awaitable[JobRequest]]",
    directly: Callable[[], Awaitable[int]],
    on_progress: Callable[[int, int], None],
    on_wait: Callable[[str], None],
) -> int:
    """Make the changes of a request as a job. Return how many were made.

    Without PostgreSQL, which records jobs, make them directly.
    """
    from ingest.cli.queues.bulk import NotRecorded, start_and_run

    try:
        ended = await start_and_run(
            servers, request, lambda so_far: on_progress(so_far.done, so_far.done + so_far.gone), on_wait
        )
    except NotRecorded as error:
        on_wait(f"PostgreSQL cannot record this change as a job, so it cannot be resumed: {error}")
        return await directly()
    if ended.state is not JobState.DONE:
        on_wait(f"the job {ended.id} is {ended.state}: {ended.error or 'see `ingest job list`'}")
    return ended.progress.done


def _of_source(found: Mapping[str, Any]) -> str:
    """The words that name the only source, if it has a name."""
    [name, *others] = found
    return f" of {name}" if name and not others else ""


def _matches(found: Mapping[str, Any]) -> str:
    """The number of entries for each reason, by source if there are several."""
    if len(found) == 1:
        return list_reasons(_reasons(found))
    return ", ".join(
        f"{name} {each.count:,} ({list_reasons(each.reasons)})" for name, each in found.items() if each.count
    )


def _reasons(found: Mapping[str, Any]) -> dict[str, int]:
    return dict(sum((Counter(each.reasons) for each in found.values()), Counter()))


def list_reasons(reasons: Mapping[str, int]) -> str:
    """The number of entries for each reason, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {printable(reason, 64) or 'without a reason'}" for reason, count in by_count)
