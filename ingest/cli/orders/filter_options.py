"""Options that select stored orders, for several commands."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from ingest.cli.options import TIME, with_parameters
from ingest.cli.terminal.times import InvalidTime, parse_time
from ingest.domain.errors import ConfigError
from ingest.domain.orders.order_filter import OrderFilter

_PANEL = "Selection: stored orders that match all of these"
_NOW = "now"

StoredBetween = Annotated[
    tuple[str, str] | None,
    typer.Option(
        help=f"Last stored with a change from the first time until before the second. {TIME} Also `now`.",
        metavar="FROM TO",
        rich_help_panel=_PANEL,
    ),
]
PlacedBetween = Annotated[
    tuple[str, str] | None,
    typer.Option(help="Placed from the first time until before the second.", metavar="FROM TO", rich_help_panel=_PANEL),
]
Status = Annotated[str | None, typer.Option(help="With this status.", rich_help_panel=_PANEL)]
Customer = Annotated[
    str | None, typer.Option("--customer", help="Of this customer ID.", metavar="ID", rich_help_panel=_PANEL)
]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", help="With this attribute. Repeatable.", metavar="NAME=VALUE", rich_help_panel=_PANEL),
]
Prefix = Annotated[
    str | None, typer.Option(help="With an ID that begins with this text.", metavar="TEXT", rich_help_panel=_PANEL)
]


def filter_of(
    stored_between: StoredBetween = None,
    placed_between: PlacedBetween = None,
    status: Status = None,
    customer: Customer = None,
    attribute: Attributes = None,
    prefix: Prefix = None,
) -> OrderFilter:
    """The filter of the options.

    Raises:
        ConfigError: a value is not valid, or no time is within a period.
    """
    stored, placed = _period(stored_between, "--stored-between"), _period(placed_between, "--placed-between")
    return OrderFilter(
        status=status,
        customer_id=customer,
        placed_from=placed[0],
        placed_to=placed[1],
        stored_from=stored[0],
        stored_to=stored[1],
        prefix=prefix,
        attributes=tuple(_attribute(text) for text in attribute or ()),
    )


def selecting(run: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that takes an `OrderFilter` as `selection`, which the command line gives with the options of `filter_of`."""
    of_filter, own = signature(filter_of).parameters, signature(run).parameters

    @wraps(run)
    def command(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in of_filter}
        run(**given, selection=filter_of(**chosen))

    keyword_only = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in of_filter.values()]
    parameters = [*(each for name, each in own.items() if name != "selection"), *keyword_only]
    return with_parameters(command, parameters)


def _period(given: tuple[str, str] | None, option: str) -> tuple[datetime | None, datetime | None]:
    if given is None:
        return None, None
    now = datetime.now(UTC)
    try:
        first, last = (now if text == _NOW else parse_time(text, now) for text in given)
    except InvalidTime as error:
        raise ConfigError(f"{option}: {error}") from error
    if first >= last:
        raise ConfigError(f"{option}: the second time must be later than the first")
    return first, last


def _attribute(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise ConfigError(f"--attribute: write a name and a value, such as channel=web, and not {text!r}")
    return name, value
