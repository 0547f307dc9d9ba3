"""Changes dead letters, from the confirmation to the report: what replaying and dropping have in common."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import typer

from ingest.cli.common import say
from ingest.cli.dead.listing import report_missing
from ingest.cli.terminal.confirmation import is_confirmed
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.domain.deliveries.dead_letter import Selection
from ingest.operations import dead_letters
from ingest.operations.backends import Backends
from ingest.process.interrupt import run_interruptible
from ingest.queue.operate.dead_letters import PAGE, Change, Survey

_NOUN = "dead letter"


class _Apply(Protocol):
    def __call__(
        self,
        backends: Backends,
        selection: Selection,
        /,
        *,
        newest: str,
        on_progress: Callable[[Change], None],
        on_wait: Callable[[str], None],
    ) -> Awaitable[Change]: ...


@dataclass(frozen=True, slots=True)
class Action:
    """A change of dead letters, and its words."""

    verb: str
    activity: str
    done: str
    apply: _Apply


REPLAY = Action("replay", "replaying", "replayed", dead_letters.replay)
DROP = Action("drop", "dropping", "dropped", dead_letters.drop)


def carry_out(
    backends: Backends, action: Action, selection: Selection, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Count the matches, ask for confirmation, make the change, and report. Return the exit code.

    Raises:
        ConfigError: if confirmation is needed and there is no terminal. Then nothing is changed.
    """
    survey = run_interruptible(_survey(backends, selection))
    report_missing(survey.missing)
    done = 0
    if not dry_run:
        if survey.count > 1 and not yes and not _is_confirmed(action, survey):
            say("nothing was changed")
            return 1
        if survey.count:
            done = run_interruptible(_apply(backends, action, selection, survey)).done
    if as_json:
        typer.echo(_as_json(action, survey, done, dry_run=dry_run))
    else:
        typer.echo(_intention(action, survey) if dry_run else _result(action, survey, done))
    return 1 if survey.missing else 0


async def _survey(backends: Backends, selection: Selection) -> Survey:
    with ProgressDisplay("searching") as display:
        return await dead_letters.survey(backends, selection, on_progress=display.update, on_wait=display.say)


def _is_confirmed(action: Action, survey: Survey) -> bool:
    question = _intention(action, survey)
    change = f"{action.verb} {counted(survey.count, _NOUN)}"
    return is_confirmed(f"{question[0].upper()}{question[1:]}.", change=change)


async def _apply(backends: Backends, action: Action, selection: Selection, survey: Survey) -> Change:
    change = Change()
    with ProgressDisplay(action.activity, survey.count) as display:

        def on_progress(so_far: Change) -> None:
            nonlocal change
            change = so_far
            display.update(change.done + change.gone)

        try:
            return await action.apply(
                backends, selection, newest=survey.newest, on_progress=on_progress, on_wait=display.say
            )
        except asyncio.CancelledError:
            display.say(
                f"stopped after {counted(change.done, _NOUN)}; up to {PAGE} more may have been {action.done} as well"
            )
            raise


def _intention(action: Action, survey: Survey) -> str:
    if not survey.count:
        return f"would {action.verb} nothing: no dead letter matches"
    return f"would {action.verb} {counted(survey.count, _NOUN)}: {list_reasons(survey.reasons)}"


def _result(action: Action, survey: Survey, done: int) -> str:
    if not survey.count:
        return f"{action.done} nothing: no dead letter matches"
    gone = survey.count - done
    note = f"; {gone:,} were already gone" if gone else f": {list_reasons(survey.reasons)}"
    return f"{action.done} {counted(done, _NOUN)}{note}"


def list_reasons(reasons: Mapping[str, int]) -> str:
    """The number of dead letters for each reason, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {printable(reason, 64) or 'without a reason'}" for reason, count in by_count)


def _as_json(action: Action, survey: Survey, done: int, *, dry_run: bool) -> str:
    return json.dumps(
        {
            "matched": survey.count,
            action.done: done,
            "gone": 0 if dry_run else survey.count - done,
            "reasons": dict(survey.reasons),
            "missing": sorted(survey.missing),
            "dry_run": dry_run,
        }
    )
