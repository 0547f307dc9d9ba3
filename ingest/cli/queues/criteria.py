"""The criteria on errors and fields that commands about dead letters and retries share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.errors import ConfigError

SELECTION = "Selection: entries that match all of these"

Text = Annotated[
    str | None,
    typer.Option(
        "--text", help="With this text in the error or the order ID.", metavar="TEXT", rich_help_panel=SELECTION
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help="With this error shape, as the command `groups` prints it, or with the shape of this error.",
        metavar="ERROR",
        rich_help_panel=SELECTION,
    ),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        help="With this field of the entry, such as origin=api. Repeatable.",
        metavar="NAME=VALUE",
        rich_help_panel=SELECTION,
    ),
]
Rate = Annotated[
    float | None, typer.Option("--rate", help="At most N changes per second.", metavar="N", min=0.001, max=1_000_000)
]


def filter_of(text: str | None, shape: str | None, attributes: Sequence[str] | None) -> EntryFilter:
    """The criteria of these options.

    Raises:
        ConfigError: an attribute is not `name=value`.
    """
    pairs = [each.partition("=") for each in attributes or ()]
    if not all(name and equals for name, equals, _ in pairs):
        raise ConfigError("--attribute: write it as NAME=VALUE, such as origin=api")
    return EntryFilter(text or "", shape or "", {name: value for name, _, value in pairs})
