"""`ingest dead`: manages the dead letters. This module replays and drops them.

The selection of dead letters is the same for all its commands.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.options import TIME, AsJson, Changing, DryRun, SourcesToChange, Yes, parse_period, taking
from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.queue.operate.dead_letters import Change
    from ingest.queue.operate.partitioned.dead_letters import TotalSurvey

COMMANDS = ("list", "show", "replay", "drop", "export")

_SELECTION = "Selection: dead letters that match all of these"

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="ID of a dead letter, or of an order, for all its dead letters.", metavar="ID", hidden=True),
]
Reasons = Annotated[
    list[DeadReason] | None,
    typer.Option(
        "--reason",
        help=f"Dead-lettered for this reason. May be repeated. One of {', '.join(DeadReason)}.",
        metavar="REASON",
        rich_help_panel=_SELECTION,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help=f"Dead-lettered at this time or later. {TIME}", metavar="TIME", rich_help_panel=_SELECTION),
]
Until = Annotated[
    str | None, typer.Option(help=f"Dead-lettered before this time. {TIME}", metavar="TIME", rich_help_panel=_SELECTION)
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.", rich_help_panel=_SELECTION)]


def dead() -> None:
    """List, replay, drop or export dead letters.

    Examples:
    `ingest dead list --since 2h` lists the dead letters of the last two hours, newest first.

    `ingest dead show 536365` shows every detail of a dead letter. The ID is an order's or a dead letter's.

    `ingest dead replay --reason not_found --dry-run` shows what would go back into the queue. Without `--dry-run`,
    it goes back.

    `ingest dead drop --reason rejected --until 30d` deletes dead letters that are more than 30 days old.

    `ingest dead export --format csv --output dead.csv` writes all dead letters to a file.

    Run `ingest dead replay --help` for the help of a command.
    """


def _changing(
    ids: Ids = None,
    *,
    source: SourcesToChange = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Changing:
    """The options of the commands that change something: criteria or `--all` are required.

    Raises:
        ConfigError: as `selection_or_all`, and if there are neither criteria nor `--all`, or both.
    """
    selection = selection_or_all(ids, reason, since, until)
    if selection.everything and not everything:
        raise ConfigError("choose dead letters by IDs, --reason, --since or --until, or all of them with --all")
    if everything and not selection.everything:
        raise ConfigError("--all selects every dead letter: use it without IDs, --reason, --since and --until")
    return Changing(selection, source, dry_run, yes, as_json)


@taking(_changing)
def replay(options: Changing) -> None:
    """Put dead letters back into the queue.

    Their attempts count from the beginning.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    INGEST_BACKLOG_LIMIT does not apply. The orders keep all their fields and the time of their first announcement, and
    record how often and when they were replayed. If Redis is unavailable or out of memory, the command reports it and waits.
    If you interrupt or repeat it, no order is lost or put back twice.

    The exit code is 1 if an ID has no dead letter. All others are put back.

    Examples:
    `ingest dead replay 536365 536366` puts two orders back into the queue. The IDs of their dead letters do the same.

    `ingest dead replay --reason not_found --since 2h` asks for confirmation if more than one dead letter matches.

    `ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

    `ingest dead replay --all --yes --json` replays all without a confirmation, and prints JSON.
    """
    from ingest.operations import dead_letters

    raise typer.Exit(_change("replay", "replayed", dead_letters.replay, options))


@taking(_changing)
def drop(options: Changing) -> None:
    """Delete dead letters permanently.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    Stored orders do not change. If Redis is unavailable, the command reports it and waits.

    The exit code is 1 if an ID has no dead letter. All others are deleted.

    Examples:
    `ingest dead drop 1763629200123-0` deletes one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead drop --until 30d` deletes dead letters that are more than 30 days old, after asking for confirmation.

    `ingest dead drop --reason rejected --dry-run` counts them, and changes nothing.

    `ingest dead export --output dead.jsonl && ingest dead drop --all --yes` keeps a copy.
    """
    from ingest.operations import dead_letters

    raise typer.Exit(_change("drop", "dropped", dead_letters.drop, options))


def selection_or_all(
    ids: Sequence[str] | None, reasons: Sequence[DeadReason] | None, since: str | None, until: str | None
) -> Selection:
    """The selection of a command that changes nothing: everything, unless there are criteria.

    Raises:
        ConfigError: if a criterion is invalid, or the criteria contradict each other.
    """
    first, last = parse_period(since, until)
    chosen = frozenset(reason.value for reason in reasons or ())
    return Selection(frozenset(ids or ()), chosen, first, last, everything=not (ids or reasons or first or last))


def _change(verb: str, done: str, apply: Callable[..., Any], options: Changing) -> int:
    """Make the change `apply` of `ingest.operations.dead_letters`. Return the exit code."""
    from ingest.cli.queues.action import Action, carry_out
    from ingest.operations.dead_letters import survey
    from ingest.queue.operate.dead_letters import PAGE

    async def apply_to(
        backends: "Backends",
        found: "TotalSurvey",
        on_progress: Callable[[int, int], None],
        on_wait: Callable[[str], None],
    ) -> int:
        result: Change = await apply(
            backends,
            options.selection,
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
        survey=lambda backends, display: survey(
            backends, options.selection, on_progress=display.update, on_wait=display.say
        ),
        apply=apply_to,
    )
    return carry_out(action, options)
