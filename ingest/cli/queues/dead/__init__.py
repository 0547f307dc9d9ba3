"""`ingest dead`: manages the dead letters. This module replays and drops them.

The selection of dead letters is the same for all its commands.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.options import TIME, AsJson, Changing, DryRun, SourcesToChange, Yes, parse_period, taking
from ingest.cli.queues.criteria import SELECTION, Attributes, Rate, Shape, Text, filter_of
from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.entry_filter import NO_FILTER, EntryFilter
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ingest.domain.operating.jobs import JobRequest
    from ingest.operations.backends import Backends
    from ingest.queue.operate.partition_dead_letters import Change, Survey

COMMANDS = ("list", "groups", "show", "replay", "drop", "export")

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="ID of a dead letter, or of an order, for all its dead letters.", metavar="ID", hidden=True),
]
Reasons = Annotated[
    list[DeadReason] | None,
    typer.Option(
        "--reason",
        help=f"Dead-lettered for this reason. Repeatable. One of {', '.join(DeadReason)}.",
        metavar="REASON",
        rich_help_panel=SELECTION,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help=f"Dead-lettered at this time or later. {TIME}", metavar="TIME", rich_help_panel=SELECTION),
]
Until = Annotated[
    str | None, typer.Option(help=f"Dead-lettered before this time. {TIME}", metavar="TIME", rich_help_panel=SELECTION)
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.", rich_help_panel=SELECTION)]


def dead() -> None:
    """List, replay, drop or export dead letters.

    Examples:
    `ingest dead list --since 2h` lists the dead letters of the last two hours, newest first.

    `ingest dead groups` counts the dead letters by reason and error.

    `ingest dead show 536365` shows every detail of a dead letter. The ID is an order's or a dead letter's.

    `ingest dead replay --reason not_found --dry-run` shows what would go back into the queue. Without `--dry-run`,
    it goes back.

    `ingest dead drop --reason rejected --until 30d` deletes dead letters that are more than 30 days old.

    `ingest dead export --format csv --output dead.csv` writes all dead letters to a file.

    Run `ingest dead replay --help` for the help of a command.
    """


def _changing(  # noqa: PLR0913  the options of a command
    ids: Ids = None,
    *,
    source: SourcesToChange = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    shape: Shape = None,
    attribute: Attributes = None,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Changing:
    """The options of the commands that change something: criteria or `--all` are required.

    Raises:
        ConfigError: as `selection_or_all`, and if there are neither criteria nor `--all`, or both.
    """
    selection = selection_or_all(ids, reason, since, until, filter_of(text, shape, attribute))
    if selection.everything and not everything:
        raise ConfigError(
            "choose dead letters by IDs, --reason, --since or another criterion, or all of them with --all"
        )
    if everything and not selection.everything:
        raise ConfigError("--all selects every dead letter: use it without IDs and other criteria")
    return Changing(selection, source, dry_run, yes, as_json, rate)


@taking(_changing)
def replay(options: Changing) -> None:
    """Put dead letters back into the queue.

    Their attempts count from the beginning.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    INGEST_BACKLOG_LIMIT does not apply. The orders keep all their fields and the time of their first announcement, and
    record how often and when they were replayed. If Redis is unavailable or out of memory, the command reports it and waits.
    If you interrupt or repeat it, no order is lost or put back twice.

    Without IDs, it is a job with a number, which continues if this process dies: see `ingest job --help`.

    The exit code is 1 if an ID has no dead letter. All others are put back.

    Examples:
    `ingest dead replay 536365 536366` puts two orders back into the queue. The IDs of their dead letters do the same.

    `ingest dead replay --reason not_found --since 2h` asks for confirmation if more than one dead letter matches.

    `ingest dead replay --shape "HTTP 422: order N is unknown"` puts a whole group of `ingest dead groups` back.

    `ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

    `ingest dead replay --all --yes --json` replays all without a confirmation, and prints JSON.
    """
    from ingest.operations.failed_orders import dead_letters

    raise typer.Exit(_change("replay", "replayed", dead_letters.replay, options, "dead_letters.replay"))


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
    from ingest.operations.failed_orders import dead_letters

    raise typer.Exit(_change("drop", "dropped", dead_letters.drop, options, "dead_letters.drop"))


def selection_or_all(
    ids: Sequence[str] | None,
    reasons: Sequence[DeadReason] | None,
    since: str | None,
    until: str | None,
    criteria: EntryFilter = NO_FILTER,
) -> Selection:
    """The selection of a command that changes nothing: everything, unless there are criteria.

    Raises:
        ConfigError: if a criterion is invalid, or the criteria contradict each other.
    """
    first, last = parse_period(since, until)
    chosen = frozenset(reason.value for reason in reasons or ())
    everything = not (ids or reasons or first or last or criteria)
    return Selection(frozenset(ids or ()), chosen, first, last, everything, criteria)


def _change(verb: str, done: str, apply: Callable[..., Any], options: Changing, kind: str) -> int:
    """Make the change `apply` of `ingest.operations.failed_orders.dead_letters`, without IDs as a job of a kind. Return the exit code."""
    from ingest.cli.queues.action import Action, applied, carry_out
    from ingest.cli.queues.bulk import change_directly
    from ingest.domain.operating.jobs import JobKind
    from ingest.operations.failed_orders.dead_letters import survey
    from ingest.operations.jobs.requests import dead_letter_request
    from ingest.queue.operate.dead_letter_pages import PAGE
    from ingest.queue.operate.dead_letters import DeadLetters
    from ingest.queue.operate.queue_parts import layout_reader

    async def apply_to(
        backends: "Backends",
        found: "Survey[Mapping[str, str]]",
        on_progress: Callable[[int, int], None],
        on_wait: Callable[[str], None],
    ) -> int:
        async def request(client: "Redis") -> "JobRequest":
            dead_letters = DeadLetters(client, layout_reader(client, backends.stream), group=backends.group)
            return await dead_letter_request(
                dead_letters,
                JobKind(kind),
                options.selection,
                newest=found.newest,
                total=found.count,
                rate=options.rate,
            )

        async def directly() -> int:
            result: Change = await apply(
                backends,
                options.selection,
                newest=found.newest,
                on_progress=lambda so_far: on_progress(so_far.done, so_far.done + so_far.gone),
                on_wait=on_wait,
            )
            return result.done

        if ids := options.selection.ids:
            return await change_directly(backends, JobKind(kind), ids, directly, on_wait)
        return await applied(backends, request, directly, on_progress, on_wait)

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
