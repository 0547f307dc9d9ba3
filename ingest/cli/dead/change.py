"""A change to dead letters, from the question to the report: what replaying and dropping have in common."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import typer

from ingest.cli.common import say
from ingest.cli.dead.listing import report_missing
from ingest.cli.dead.progress import Display
from ingest.cli.dead.texts import counted, listed
from ingest.domain.dead_letter import Selection
from ingest.domain.errors import ConfigError
from ingest.queue.dead_letters import PAGE, Change, DeadLetters, Survey
from ingest.settings import Settings


class _Apply(Protocol):
    def __call__(
        self, dead_letters: DeadLetters, selection: Selection, /, *, newest: str, on_progress: Callable[[Change], None]
    ) -> Awaitable[Change]: ...


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to them, in the words for it."""

    verb: str
    doing: str
    done: str
    apply: _Apply


REPLAY = Action("replay", "replaying", "replayed", DeadLetters.replay)
DROP = Action("drop", "dropping", "dropped", DeadLetters.drop)


@dataclass(slots=True)
class _Progress:
    """What is done, also where it was interrupted."""

    change: Change = field(default_factory=Change)

    def update(self, display: Display, change: Change) -> None:
        self.change = change
        display.update(change.done + change.gone)


def carry_out(
    settings: Settings, action: Action, selection: Selection, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Look what is meant, ask, do it, and report; return the exit code.

    Raises:
        ConfigError: if nobody is there to be asked; nothing is changed then.
    """
    survey = asyncio.run(_survey(settings, selection))
    report_missing(survey.missing)
    done = 0
    if not dry_run:
        if survey.count > 1 and not yes and not _agreed(action, survey):
            say("nothing was changed")
            return 1
        if survey.count:
            done = asyncio.run(_apply(settings, action, selection, survey)).done
    if as_json:
        typer.echo(_as_json(action, survey, done, dry_run=dry_run))
    else:
        typer.echo(_would(action, survey) if dry_run else _did(action, survey, done))
    return 1 if survey.missing else 0


async def _survey(settings: Settings, selection: Selection) -> Survey:
    url = settings.redis_url.get_secret_value()
    with Display("searching", None) as display:
        async with DeadLetters.connect(url, settings.stream, on_wait=display.say) as dead_letters:
            return await dead_letters.survey(selection, on_progress=display.update)


def _agreed(action: Action, survey: Survey) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"this would {action.verb} {counted(survey.count)}, and there is no terminal to ask at: add --yes; "
            "nothing was changed"
        )
    # On stderr: stdout is for data. Typer's own question writes to both.
    question = _would(action, survey)
    sys.stderr.write(f"{question[0].upper()}{question[1:]}. Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _apply(settings: Settings, action: Action, selection: Selection, survey: Survey) -> Change:
    url = settings.redis_url.get_secret_value()
    progress = _Progress()
    with Display(action.doing, survey.count) as display:
        async with DeadLetters.connect(url, settings.stream, on_wait=display.say) as dead_letters:
            told = partial(progress.update, display)
            try:
                return await action.apply(dead_letters, selection, newest=survey.newest, on_progress=told)
            except asyncio.CancelledError:
                display.say(
                    f"stopped after {counted(progress.change.done)}; the next {PAGE} may be {action.done} as well"
                )
                raise


def _would(action: Action, survey: Survey) -> str:
    if not survey.count:
        return f"would {action.verb} nothing: no dead letter matches"
    return f"would {action.verb} {counted(survey.count)}: {listed(survey.reasons)}"


def _did(action: Action, survey: Survey, done: int) -> str:
    if not survey.count:
        return f"{action.done} nothing: no dead letter matches"
    gone = survey.count - done
    return f"{action.done} {counted(done)}" + (
        f"; {gone:,} were gone already" if gone else f": {listed(survey.reasons)}"
    )


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
