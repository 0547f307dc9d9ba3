"""The options that several commands share, and the selection they make."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from ingest.cli.dead.moments import InvalidMoment, parse_moment
from ingest.domain.dead_letter import InvalidSelection, Selection
from ingest.domain.delivery import DeadReason
from ingest.domain.errors import ConfigError

_WHICH = "Which dead letters: those that meet all of these"
_MOMENT = "ISO 8601 (UTC unless it says otherwise), or an age: 30m, 2h, 7d."

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Dead letters by their own IDs, or all those of an order by its ID.", metavar="ID"),
]
Reasons = Annotated[
    list[DeadReason] | None,
    typer.Option(
        "--reason",
        help=f"Buried for this reason; may be repeated. One of {', '.join(DeadReason)}.",
        metavar="REASON",
        rich_help_panel=_WHICH,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help=f"Buried then or later. {_MOMENT}", metavar="TIME", rich_help_panel=_WHICH),
]
Until = Annotated[str | None, typer.Option(help=f"Buried before. {_MOMENT}", metavar="TIME", rich_help_panel=_WHICH)]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters there are.", rich_help_panel=_WHICH)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, however many they are.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def chosen(
    ids: Sequence[str] | None, reasons: Sequence[DeadReason] | None, since: str | None, until: str | None
) -> Selection | None:
    """The selection that the criteria make; None if there are none.

    Raises:
        ConfigError: if one cannot be used, or together they mean nothing.
    """
    if not (ids or reasons or since is not None or until is not None):
        return None
    now = datetime.now(UTC)
    try:
        return Selection(
            ids=frozenset(ids or ()),
            reasons=frozenset(reason.value for reason in reasons or ()),
            since=None if since is None else parse_moment(since, now),
            until=None if until is None else parse_moment(until, now),
        )
    except InvalidMoment as error:
        raise ConfigError(str(error)) from error
    except InvalidSelection as error:
        raise ConfigError("--until must be later than --since") from error


def chosen_or_all(
    ids: Sequence[str] | None, reasons: Sequence[DeadReason] | None, since: str | None, until: str | None
) -> Selection:
    """For what changes nothing: without criteria, everything."""
    return chosen(ids, reasons, since, until) or Selection(everything=True)


def required(
    ids: Sequence[str] | None,
    reasons: Sequence[DeadReason] | None,
    since: str | None,
    until: str | None,
    *,
    everything: bool,
) -> Selection:
    """For what changes something: everything has to be said.

    Raises:
        ConfigError: also if nothing says which, or --all contradicts what does.
    """
    selection = chosen(ids, reasons, since, until)
    if selection is None and not everything:
        raise ConfigError("say which dead letters: IDs, or --reason, --since, --until, or --all")
    if selection is not None and everything:
        raise ConfigError("--all means every dead letter: leave it out, or the IDs, --reason, --since and --until")
    return selection or Selection(everything=True)
