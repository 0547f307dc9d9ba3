"""Changes retries, from the confirmation to the report: what running them now and dead-lettering them have in common."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import typer

from ingest.cli.common import say
from ingest.cli.retries.options import report_missing
from ingest.cli.terminal.confirmation import is_confirmed
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import printable
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.errors import QueueUnavailable
from ingest.operations.backends import Backends
from ingest.operations.retries import survey
from ingest.process.interrupt import run_interruptible
from ingest.queue.operate.retries import PAGE, RetrySurvey

Apply = Callable[[Backends, RetrySurvey, Callable[[int], None]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Action:
    """A change of retries, and its words: `would {verb} 3 retries{end}`."""

    verb: str
    done: str
    key: str
    apply: Apply
    end: str = ""


def carry_out(
    backends: Backends, action: Action, selection: RetrySelection, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Count the matches, ask for confirmation, make the change, and report. Return the exit code.

    Raises:
        ConfigError: if confirmation is needed and there is no terminal. Then nothing is changed.
    """
    found = run_interruptible(_survey(backends, selection))
    report_missing(found.missing)
    reasons, matched, done = found.reasons, found.count, 0
    if matched and not dry_run:
        if matched > 1 and not yes and not _is_confirmed(action, reasons):
            say("nothing was changed")
            return 1
        done = run_interruptible(_apply(backends, action, found))
    if as_json:
        gone = 0 if dry_run else matched - done
        report = {"matched": matched, action.key: done, "gone": gone, "reasons": dict(reasons)}
        typer.echo(json.dumps(report | {"missing": sorted(found.missing), "dry_run": dry_run}))
    elif not matched:
        typer.echo("no retry matches")
    else:
        typer.echo(_intention(action, reasons) if dry_run else _result(action, matched, done))
    return 1 if found.missing else 0


async def _survey(backends: Backends, selection: RetrySelection) -> RetrySurvey:
    with ProgressDisplay("searching") as display:
        return await survey(backends, selection, on_progress=display.update)


async def _apply(backends: Backends, action: Action, found: RetrySurvey) -> int:
    done = 0
    with ProgressDisplay(action.verb, total := found.count) as display:

        def on_progress(so_far: int) -> None:
            nonlocal done
            done = so_far
            display.update(so_far)

        try:
            return await action.apply(backends, found, on_progress)
        except (asyncio.CancelledError, QueueUnavailable):
            display.say(f"stopped after {_counted(done)} of {total:,}; up to {PAGE} more may have been changed as well")
            raise


def _intention(action: Action, reasons: Mapping[str, int]) -> str:
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{count:,} {printable(reason, 64) or 'without a reason'}" for reason, count in by_count)
    return f"would {action.verb} {_counted(sum(reasons.values()))}{action.end}: {told}"


def _result(action: Action, matched: int, done: int) -> str:
    gone = f"; {matched - done:,} had already moved on" if done < matched else ""
    return f"{action.done} {_counted(done)}{action.end}{gone}"


def _is_confirmed(action: Action, reasons: Mapping[str, int]) -> bool:
    question = _intention(action, reasons)
    return is_confirmed(f"{question[0].upper()}{question[1:]}.", change=question.removeprefix("would "))


def _counted(count: int) -> str:
    return f"{count:,} {'retry' if count == 1 else 'retries'}"
