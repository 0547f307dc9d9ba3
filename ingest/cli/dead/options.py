"""The options that the commands share, and the selection that they make."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from ingest.cli.terminal.times import InvalidTime, parse_time
from ingest.domain.deliveries.dead_letter import InvalidSelection, Selection
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import ConfigError

_SELECTION = "Selection: dead letters that match all of these"
_TIME = "ISO 8601 (in UTC unless it has an offset), or an age: 30m, 2h, 7d."

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
    typer.Option(help=f"Dead-lettered at this time or later. {_TIME}", metavar="TIME", rich_help_panel=_SELECTION),
]
Until = Annotated[
    str | None,
    typer.Option(help=f"Dead-lettered before this time. {_TIME}", metavar="TIME", rich_help_panel=_SELECTION),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.", rich_help_panel=_SELECTION)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def selection_or_none(
    ids: Sequence[str] | None, reasons: Sequence[DeadReason] | None, since: str | None, until: str | None
) -> Selection | None:
    """The selection of the criteria, or None if there are none.

    Raises:
        ConfigError: if a criterion is invalid, or the criteria contradict each other.
    """
    if not (ids or reasons or since is not None or until is not None):
        return None
    now = datetime.now(UTC)
    try:
        return Selection(
            ids=frozenset(ids or ()),
            reasons=frozenset(reason.value for reason in reasons or ()),
            since=None if since is None else parse_time(since, now),
            until=None if until is None else parse_time(until, now),
        )
    except InvalidTime as error:
        raise ConfigError(str(error)) from error
    except InvalidSelection as error:
        raise ConfigError("--until must be later than --since") from error


def selection_or_all(
    ids: Sequence[str] | None, reasons: Sequence[DeadReason] | None, since: str | None, until: str | None
) -> Selection:
    """The selection of a command that changes nothing: everything, unless there are criteria."""
    return selection_or_none(ids, reasons, since, until) or Selection(everything=True)


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
    selection = selection_or_none(ids, reasons, since, until)
    if selection is None and not everything:
        raise ConfigError("choose dead letters by IDs, --reason, --since or --until, or all of them with --all")
    if selection is not None and everything:
        raise ConfigError("--all selects every dead letter: use it without IDs, --reason, --since and --until")
    return selection or Selection(everything=True)
