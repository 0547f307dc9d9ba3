"""Changes selected dead letters or retries, from the confirmation to the report."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from ingest.cli.invocation import is_confirmed, say
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import printable
from ingest.domain.errors import QueueUnavailable
from ingest.process.interrupt import run_interruptible


@dataclass(frozen=True, slots=True)
class Action:
    """A change of selected entries, and its words: `would {verb} 3 {nouns}{end}`, `{done} 3 {nouns}{end}`.

    Attributes:
        noun: names one entry.
        nouns: names several.
        key: of the number of changed entries in JSON.
        page: entries that one step changes.
        survey: finds the entries. The result has their `count`, their `reasons`, and `missing`, the IDs without an entry.
        apply: changes the entries that a survey has found, and returns how many. Its callbacks get the number of changed
            entries with the number of all that are examined, and the reason for a wait.
    """

    verb: str
    done: str
    key: str
    noun: str
    nouns: str
    page: int
    survey: Callable[[ProgressDisplay], Awaitable[Any]]
    apply: Callable[[Any, Callable[[int, int], None], Callable[[str], None]], Awaitable[int]]
    end: str = ""

    def counted(self, count: int) -> str:
        """A number of entries: `1 retry`, `2,000 retries`."""
        return f"{count:,} {self.noun if count == 1 else self.nouns}"


def carry_out(action: Action, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Count the matches, ask for confirmation, make the change, and report. Return the exit code.

    Raises:
        ConfigError: if confirmation is needed and there is no terminal. Then nothing is changed.
    """
    found = run_interruptible(_survey(action))
    for missing in sorted(found.missing):
        say(f"no {action.noun} for {printable(missing)}")
    reasons, matched, done = list_reasons(found.reasons), found.count, 0
    change = f"{action.verb} {action.counted(matched)}{action.end}"
    if matched and not dry_run:
        if matched > 1 and not yes and not is_confirmed(f"Would {change}: {reasons}.", change=change):
            say("nothing was changed")
            return 1
        done = run_interruptible(_apply(action, found))
    gone = 0 if dry_run else matched - done
    if as_json:
        report = {"matched": matched, action.key: done, "gone": gone, "reasons": dict(found.reasons)}
        typer.echo(json.dumps(report | {"missing": sorted(found.missing), "dry_run": dry_run}))
    elif not matched:
        typer.echo(f"no {action.noun} matches")
    elif dry_run:
        typer.echo(f"would {change}: {reasons}")
    else:
        note = f"; {gone:,} were already gone" if gone else f": {reasons}"
        typer.echo(f"{action.done} {action.counted(done)}{action.end}{note}")
    return 1 if found.missing else 0


async def _survey(action: Action) -> Any:
    with ProgressDisplay("searching") as display:
        return await action.survey(display)


async def _apply(action: Action, found: Any) -> int:
    changed = 0
    with ProgressDisplay(action.verb, total := found.count) as display:

        def on_progress(so_far: int, examined: int) -> None:
            nonlocal changed
            changed = so_far
            display.update(examined)

        try:
            return await action.apply(found, on_progress, display.say)
        except (asyncio.CancelledError, QueueUnavailable):
            display.say(
                f"stopped after {action.counted(changed)} of {total:,};"
                f" up to {action.page} more may have been changed as well"
            )
            raise


def list_reasons(reasons: Mapping[str, int]) -> str:
    """The number of entries for each reason, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {printable(reason, 64) or 'without a reason'}" for reason, count in by_count)
