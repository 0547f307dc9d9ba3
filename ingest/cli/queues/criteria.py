"""The criteria on errors and fields that commands about dead letters and retries share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ingest.cli.options import parse_period
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import Selection
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


def selection_or_all(
    ids: Sequence[str] | None,
    reasons: Sequence[str] | None,
    since: str | None,
    until: str | None,
    text: str | None,
    shape: str | None,
    attributes: Sequence[str] | None,
) -> Selection:
    """The selection of these options: everything, unless there are criteria.

    Raises:
        ConfigError: if a criterion is invalid, or the criteria contradict each other.
    """
    pairs = [each.partition("=") for each in attributes or ()]
    if not all(name and equals for name, equals, _ in pairs):
        raise ConfigError("--attribute: write it as NAME=VALUE, such as origin=api")
    criteria = EntryFilter(text or "", shape or "", {name: value for name, _, value in pairs})
    first, last = parse_period(since, until)
    everything = not (ids or reasons or first or last or criteria)
    return Selection(frozenset(ids or ()), frozenset(map(str, reasons or ())), first, last, everything, criteria)


def selection_to_change(selection: Selection, *, everything: bool, noun: str, nouns: str, names: str) -> None:
    """Check the selection of a command that changes something: criteria or `--all` are required.

    Raises:
        ConfigError: there are neither criteria nor `--all`, or both.
    """
    if selection.everything and not everything:
        raise ConfigError(f"choose {nouns} by {names}, or all of them with --all")
    if everything and not selection.everything:
        raise ConfigError(f"--all selects every {noun}: use it without IDs and other criteria")
