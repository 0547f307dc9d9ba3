"""Replays or drops dead letters: what the two commands have in common."""

from collections.abc import Callable
from typing import Any

from ingest.cli.action import Action, carry_out
from ingest.cli.invocation import start_with_backends
from ingest.domain.deliveries.dead_letter import Selection
from ingest.operations import dead_letters
from ingest.queue.operate.dead_letters import PAGE, Change, Survey


def change(
    verb: str, done: str, apply: Callable[..., Any], selection: Selection, *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Make the change `apply` of `ingest.operations.dead_letters`. Return the exit code."""
    backends = start_with_backends()

    async def apply_to(found: Survey, on_progress: Callable[[int, int], None], on_wait: Callable[[str], None]) -> int:
        result: Change = await apply(
            backends,
            selection,
            newest=found.newest,
            on_progress=lambda so_far: on_progress(so_far.done, so_far.done + so_far.gone),
            on_wait=on_wait,
        )
        return result.done

    action = Action(
        verb=verb,
        done=done,
        key=done,
        noun="dead letter",
        nouns="dead letters",
        page=PAGE,
        survey=lambda display: dead_letters.survey(
            backends, selection, on_progress=display.update, on_wait=display.say
        ),
        apply=apply_to,
    )
    return carry_out(action, dry_run=dry_run, yes=yes, as_json=as_json)
