"""Options and arguments that several commands share, and the checks of their values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from ingest.cli.terminal.times import InvalidTime, parse_time
from ingest.domain.errors import ConfigError
from ingest.domain.operating.backfill import InvalidPeriod, period_of
from ingest.domain.orders.order import InvalidOrderId, parse_order_id


def complete_source(incomplete: str) -> list[str]:
    """The names of sources that begin with a text, for the completion of shells. With unusable settings, there are none."""
    from ingest.settings import load_settings
    from ingest.settings.source_file import source_names

    try:
        return [name for name in source_names(load_settings()) if name and name.startswith(incomplete)]
    except ConfigError:
        return []


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit = Annotated[int, typer.Option(help="List at most N.", min=1, max=10_000)]
OneSource = Annotated[
    # A list, because a repeated option would otherwise count only once, and the command would leave out a source.
    list[str] | None,
    typer.Option(
        "--source", help="The source. Defaults to the only one.", metavar="NAME", autocompletion=complete_source
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Only this source. Repeatable. Defaults to all sources.",
        metavar="NAME",
        autocompletion=complete_source,
    ),
]
OrderIds = Annotated[list[str], typer.Argument(help="Order ID.", metavar="ID", hidden=True)]
JobId = Annotated[int, typer.Argument(help="Number of the backfill.", metavar="ID", hidden=True, min=1)]

# A list of order IDs, for `ingest.cli.orders.id_sources.sources.pick_source`.
ListedIds = Annotated[list[str] | None, typer.Argument(help="Order IDs. `-` reads stdin.", metavar="ID", hidden=True)]
ListFile = Annotated[str | None, typer.Option("--file", help="Read IDs from a file. `-` is stdin.", metavar="PATH")]
ListColumn = Annotated[str | None, typer.Option("--column", help="The CSV column or JSONL member that holds the ID.")]
ListFormat = Annotated[
    str | None,
    typer.Option("--format", help="lines, csv or jsonl. Defaults to the extension of the file.", metavar="FORMAT"),
]

SourcesToChange = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Only this source. Repeatable. Required if there are several.",
        metavar="NAME",
        autocompletion=complete_source,
    ),
]

TIME = "ISO 8601 (in UTC unless it has an offset), or an age: 30m, 2h, 7d."


@dataclass(frozen=True, slots=True)
class Changing:
    """The options of a command that changes selected entries.

    Attributes:
        selection: the entries.
        sources: the names of their sources.
        dry_run: whether to only count them.
        yes: whether to skip the confirmation.
        rate: limit of changes per second, or None.
    """

    selection: Any
    sources: Sequence[str] | None
    dry_run: bool
    yes: bool
    as_json: bool
    rate: float | None = None


def option(panel: str | None, help_text: str, *names: str, **settings: Any) -> Any:
    """An option in a panel of a long help text."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel, **settings)


def with_parameters(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Give a function these parameters, from which Typer reads the options of a command."""
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # functions may have one
    return command


def parse_ids(ids: Sequence[str]) -> list[str]:
    """The order IDs, each once.

    Raises:
        ConfigError: if one of them is not an order ID.
    """
    try:
        return list(dict.fromkeys(parse_order_id(order_id) for order_id in ids))
    except InvalidOrderId as error:
        raise ConfigError(str(error)) from error


def checked_id(order_id: str | None, option: str) -> str | None:
    """The order ID that the option names, if it names one.

    Raises:
        typer.BadParameter: if it is not an order ID.
    """
    try:
        return None if order_id is None else parse_order_id(order_id)
    except InvalidOrderId as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from None


def parse_period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """The times of `--since` and `--until`.

    Raises:
        ConfigError: if one of them is not a time, or no time is between them.
    """
    now = datetime.now(UTC)
    try:
        first, last = (None if text is None else parse_time(text, now) for text in (since, until))
    except InvalidTime as error:
        raise ConfigError(str(error)) from error
    if first is not None and last is not None and first >= last:
        raise ConfigError("--until must be later than --since")
    return first, last


def parse_listed_period(since: str, until: str | None) -> tuple[datetime, datetime | None]:
    """The period of a shop's list from `--since` and `--until`. See `period_of`.

    Raises:
        ConfigError: if one of them is not a time, or no order can have changed within the period.
    """
    begin, end = parse_period(since, until)
    assert begin is not None  # noqa: S101  of a time that is given
    try:
        return period_of(begin, end, datetime.now(UTC))
    except InvalidPeriod as error:
        raise ConfigError(f"--since and --until: {error}") from error
