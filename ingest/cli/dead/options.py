"""The options that the commands share, and the selection that they make."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ingest.cli.options import TIME, parse_period
from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import ConfigError

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
    str | None,
    typer.Option(help=f"Dead-lettered before this time. {TIME}", metavar="TIME", rich_help_panel=_SELECTION),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.", rich_help_panel=_SELECTION)]


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


def required_selection(
    ids: Sequence[str] | None,
    reasons: Sequence[DeadReason] | None,
    since: str | None,
    until: str | None,
    *,
    everything: bool,
) -> Selection:
    """The selection of a command that changes something: criteria or `--all` are required.

    Raises:
        ConfigError: also if there is neither, or both.
    """
    selection = selection_or_all(ids, reasons, since, until)
    if selection.everything and not everything:
        raise ConfigError("choose dead letters by IDs, --reason, --since or --until, or all of them with --all")
    if everything and not selection.everything:
        raise ConfigError("--all selects every dead letter: use it without IDs, --reason, --since and --until")
    return selection
