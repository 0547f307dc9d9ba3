"""`ingest dead show`: shows every detail of dead letters."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, reader
from ingest.cli.options import AsJson, Sources
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_age, format_time
from ingest.cli.terminal.width import console_on
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.selection import Selection

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST_FIELD = 2_000


def show(
    ids: Annotated[
        list[str],
        typer.Argument(
            help="ID of a dead letter, or of an order, for all its dead letters.", metavar="ID", hidden=True
        ),
    ],
    *,
    source: Sources = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters with all their fields.

    It changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The exit code is 1 if an ID has no dead letter, or if Redis cannot be used for a partition.

    Examples:
    `ingest dead show 1763629200123-0` shows one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead show 536365` shows every dead letter of an order.

    `ingest dead show 536365 --source shop-de` searches one source. Without `--source`, it searches all sources.

    `ingest dead show 536365 --json | jq -r .fields.document` prints a pushed document. With `--json`, each line is
    a JSON object.
    """
    from ingest.cli.queues.dead.search import exit_code_of, print_json, search
    from ingest.operations.failed_orders import dead_letters

    sources, selection = [*backends_of_sources(source).values()], Selection(ids=frozenset(ids))
    if as_json:
        raise typer.Exit(exit_code_of(print_json(sources, selection, reader("dead show"))))
    with standard_output() as stream:
        console, shown = console_on(stream), 0

        def write(source: str, entries: Sequence[DeadLetterEntry]) -> None:
            nonlocal shown
            for entry in entries:
                if shown:
                    console.print()
                console.print(_table(entry, source))
                shown += 1

        found = search(
            partial(dead_letters.find, sources, selection, write, reader=reader("dead show")), data_stream=stream
        )
    raise typer.Exit(exit_code_of(found))


def _table(entry: DeadLetterEntry, source: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from ingest.operations.failed_orders.entry_json import texts

    details = Table(box=None, show_header=False, pad_edge=False)
    details.add_column(style="dim", no_wrap=True)
    details.add_column(overflow="fold")
    for name, value in [*_details(entry, source), *texts(entry.fields).items()]:
        details.add_row(Text(printable(name, 64)), Text(_shortened(value)))
    return details


def _details(entry: DeadLetterEntry, source: str) -> Iterator[tuple[str, str]]:
    yield "id", entry.entry_id
    if source:
        yield "source", source
    yield "order", entry.order_id or ""
    yield "reason", entry.reason
    yield "error", entry.error
    yield "attempts", "" if entry.attempts is None else str(entry.attempts)
    yield "first enqueued", _with_age(entry.first_enqueued_at)
    yield "dead since", _with_age(entry.dead_at)
    if entry.last_seen_at:
        yield "seen", f"{entry.seen:,} times, last at {_with_age(entry.last_seen_at)}"
    yield "worker", entry.worker or ""
    yield "replays", str(entry.replays)
    if entry.replayed_at:
        yield "last replay", _with_age(entry.replayed_at)


def _with_age(moment: datetime | None) -> str:
    return "" if moment is None else f"{format_time(moment)} ({format_age(moment, datetime.now(UTC))})"


def _shortened(value: str) -> str:
    rest = len(value) - _LONGEST_FIELD
    return printable(value[:_LONGEST_FIELD]) + (f"… and {rest:,} characters: --json shows all" if rest > 0 else "")
