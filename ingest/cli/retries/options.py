"""The options that the commands share, and the selection that they make."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.errors import ConfigError

Ids = Annotated[list[str] | None, typer.Argument(help="Order ID.", metavar="ID", hidden=True)]
Reasons = Annotated[
    list[RetryReason] | None,
    typer.Option(
        "--reason",
        help=f"Retried for this reason. May be repeated. One of {', '.join(RetryReason)}.",
        metavar="REASON",
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="All retries.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def report_missing(ids: frozenset[str]) -> None:
    """Print which orders have no retry, or none that meets the other criteria."""
    from ingest.cli.common import say
    from ingest.cli.terminal.text import printable

    for missing in sorted(ids):
        say(f"no retry for {printable(missing)}")


def selection_or_all(ids: Sequence[str] | None, reasons: Sequence[RetryReason] | None) -> RetrySelection:
    """The selection of a command that changes nothing: everything, unless there are criteria."""
    if not ids and not reasons:
        return RetrySelection(everything=True)
    return RetrySelection(frozenset(ids or ()), frozenset(reason.value for reason in reasons or ()))


def required_selection(
    ids: Sequence[str] | None, reasons: Sequence[RetryReason] | None, *, everything: bool
) -> RetrySelection:
    """The selection of a command that changes something: criteria or `--all` are required.

    Raises:
        ConfigError: if there is neither, or both.
    """
    if not (ids or reasons or everything):
        raise ConfigError("choose retries by order IDs or --reason, or all of them with --all")
    if (ids or reasons) and everything:
        raise ConfigError("--all selects every retry: use it without IDs and --reason")
    return selection_or_all(ids, reasons)
