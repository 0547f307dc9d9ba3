"""Changes selected dead letters or retries, from the confirmation to the report."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ingest.cli.invocation import actor, backends_to_change, is_confirmed, say
from ingest.cli.options import Changing
from ingest.cli.queues.bulk import NotRecorded, change_directly, start_and_run
from ingest.cli.queues.entry_lists import say_missing, unavailable_objects
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import printable
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.jobs import JobKind, JobProgress, JobState
from ingest.domain.source_name import UNNAMED
from ingest.operations.failed_orders.entries import DeadLetterEntries, RetryEntries, entries_of, open_entries
from ingest.operations.jobs.requests import entry_request
from ingest.process.interrupt import run_interruptible
from ingest.queue.operate.failed.partition_dead_letters import Change

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ingest.domain.operating.jobs import JobRequest
    from ingest.operations.backends import Backends


# The words of a change: `would VERB 3 entriesEND`, `DONE 3 entriesEND`.
_WORDS = {
    JobKind.REPLAY: ("replay", "replayed", ""),
    JobKind.DROP: ("drop", "dropped", ""),
    JobKind.RUN_NOW: ("run", "running", " now"),
    JobKind.DEAD_LETTER: ("dead-letter", "dead-lettered", ""),
}


@dataclass(frozen=True, slots=True)
class Action:
    """A change of selected entries."""

    kind: JobKind
    entries: EntryKind
    options: Changing

    async def survey(self, backends: "Backends", display: ProgressDisplay) -> Any:
        """Find the entries of a source."""
        async with open_entries(backends, self.entries, display.say) as entries:
            return await entries.survey(self.options.selection, on_progress=display.update)

    async def apply(
        self,
        backends: "Backends",
        found: Any,
        on_progress: Callable[[int, int], None],
        on_wait: Callable[[str], None],
    ) -> int:
        """Change the entries that a survey of this source has found, and return how many.

        `on_progress` gets the number of changed entries with the number of all that are examined, and `on_wait` the reason for a wait.
        """
        selection = self.options.selection

        def report(so_far: Change | JobProgress) -> None:
            on_progress(so_far.done, so_far.done + so_far.gone)

        async def request(client: "Redis") -> "JobRequest":
            entries = entries_of(client, backends, self.entries)
            return await entry_request(
                entries, self.kind, selection, newest=found.newest, total=found.count, rate=self.options.rate
            )

        async def directly() -> int:
            async with open_entries(backends, self.entries, on_wait) as entries:
                change = await entries.change(self.kind, selection, found, actor=actor(), on_progress=report)
                return change.done

        if selection.ids:
            return await change_directly(backends, self.kind, selection.ids, directly, on_wait)
        try:
            ended = await start_and_run(backends, request, report, on_wait)
        except NotRecorded as error:
            on_wait(f"PostgreSQL cannot record this change as a job, so it cannot be resumed: {error}")
            return await directly()
        if ended.state is not JobState.DONE:
            on_wait(f"the job {ended.id} is {ended.state}: {ended.error or 'see `ingest job list`'}")
        return ended.progress.done

    @property
    def words(self) -> tuple[str, str, str]:
        """The words of the change: before and after it, and behind the entries."""
        return _WORDS[self.kind]

    @property
    def step(self) -> int:
        """The number of entries that one step changes."""
        return DeadLetterEntries.step if self.entries is EntryKind.DEAD_LETTERS else RetryEntries.step

    def counted(self, count: int) -> str:
        """A number of entries: `1 retry`, `2,000 retries`."""
        return f"{count:,} {self.entries.noun if count == 1 else self.entries.nouns}"


def carry_out(kind: JobKind, options: Changing) -> NoReturn:
    """Count the matches, ask for confirmation, make the change, and report.

    Raises:
        typer.Exit: with the exit code.
        ConfigError: a source has to be named, or confirmation is needed and there is no terminal. Then nothing is changed.
    """
    assert kind.entries is not None  # noqa: S101  of all kinds in `_WORDS`
    action = Action(kind, kind.entries, options)
    verb, done_word, end_word = action.words
    key = done_word.replace("-", "_")
    sources = backends_to_change(options.sources, dry_run=options.dry_run)
    found = run_interruptible(_survey(action, sources))
    unavailable = {(name, each.queue): each.reason for name, survey in found.items() for each in survey.unavailable}
    # An unavailable partition may contain the others.
    missing = frozenset[str]() if unavailable else frozenset.intersection(*(each.missing for each in found.values()))
    say_missing(action.entries, missing, unavailable)
    matched, done = sum(each.count for each in found.values()), dict.fromkeys(found, 0)
    end = _of_source(found) + end_word
    change = f"{verb} {action.counted(matched)}{end}"
    if matched and not options.dry_run:
        if matched > 1 and not options.yes and not is_confirmed(f"Would {change}: {_matches(found)}.", change=change):
            say("nothing was changed")
            raise typer.Exit(1)
        done = run_interruptible(_apply(action, sources, found))
    gone = 0 if options.dry_run else matched - sum(done.values())
    if options.as_json:
        report = {"matched": matched, key: sum(done.values()), "gone": gone, "reasons": _reasons(found)}
        if UNNAMED not in found:
            report["sources"] = [
                {"source": name, "matched": each.count, key: done[name], "reasons": dict(each.reasons)}
                for name, each in found.items()
            ]
        if unavailable:
            report["unavailable"] = unavailable_objects(unavailable)
        typer.echo(json.dumps(report | {"missing": sorted(missing), "dry_run": options.dry_run}))
    elif not matched:
        typer.echo(f"no {action.entries.noun} matches")
    elif options.dry_run:
        typer.echo(f"would {change}: {_matches(found)}")
    else:
        note = f"; {gone:,} were already gone" if gone else f": {_matches(found)}"
        typer.echo(f"{done_word} {action.counted(sum(done.values()))}{end}{note}")
    raise typer.Exit(1 if missing or unavailable else 0)


async def _survey(action: Action, sources: Mapping[str, "Backends"]) -> dict[str, Any]:
    with ProgressDisplay("searching") as display:
        return {name: await action.survey(backends, display) for name, backends in sources.items()}


async def _apply(action: Action, sources: Mapping[str, "Backends"], found: Mapping[str, Any]) -> dict[str, int]:
    done = dict.fromkeys(found, 0)
    with ProgressDisplay(action.words[0], total := sum(each.count for each in found.values())) as display:
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
                    f" up to {action.step} more may have been changed as well"
                )
                raise
    return done


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
