"""`ingest dead show`: shows every detail of dead letters."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.dead.options import AsJson
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from rich.table import Table

    from ingest.domain.deliveries.dead_letter import Selection
    from ingest.operations.backends import Backends
    from ingest.operations.dead_letters import WrittenDeadLetters

_LONGEST_FIELD = 2_000


def show(
    ids: Annotated[
        list[str],
        typer.Argument(
            help="ID of a dead letter, or of an order, for all its dead letters.", metavar="ID", hidden=True
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Show dead letters with all their fields. Changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The exit code is 1 if an ID has no dead letter.

    Examples:
    `ingest dead show 1763629200123-0` shows one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead show 536365` shows every dead letter of an order.

    `ingest dead show 536365 --json | jq -r .fields.document` is for scripts: one JSON object per line.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.listing import print_json
    from ingest.domain.deliveries.dead_letter import Selection
    from ingest.operations.backends import Backends

    backends = Backends.of(start())
    found = (print_json if as_json else _print_details)(backends, Selection(ids=frozenset(ids)))
    raise typer.Exit(1 if found.missing else 0)


def _print_details(backends: "Backends", selection: "Selection") -> "WrittenDeadLetters":
    from ingest.cli.dead.listing import read
    from ingest.cli.terminal.output import standard_output
    from ingest.cli.terminal.width import console_on

    now = datetime.now(UTC)
    with standard_output() as stream:
        console, shown = console_on(stream), 0

        def write(entries: Sequence[DeadLetterEntry]) -> None:
            nonlocal shown
            for entry in entries:
                if shown:
                    console.print()
                console.print(_table(entry, now))
                shown += 1

        return run_interruptible(read(backends, selection, write, stream))


def _table(entry: DeadLetterEntry, now: datetime) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from ingest.cli.terminal.text import printable
    from ingest.operations.dead_letters import texts

    details = Table(box=None, show_header=False, pad_edge=False)
    details.add_column(style="dim", no_wrap=True)
    details.add_column(overflow="fold")
    for name, value in [*_details(entry, now), *texts(entry.fields).items()]:
        details.add_row(Text(printable(name, 64)), Text(_shortened(value)))
    return details


def _details(entry: DeadLetterEntry, now: datetime) -> Iterator[tuple[str, str]]:
    from ingest.cli.terminal.times import format_age, format_time

    def with_age(moment: datetime | None) -> str:
        return "" if moment is None else f"{format_time(moment)} ({format_age(moment, now)})"

    yield "id", entry.entry_id
    yield "order", entry.order_id or ""
    yield "reason", entry.reason
    yield "error", entry.error
    yield "attempts", "" if entry.attempts is None else str(entry.attempts)
    yield "first enqueued", with_age(entry.first_enqueued_at)
    yield "dead since", with_age(entry.dead_at)
    yield "worker", entry.worker or ""
    yield "replays", str(entry.replays)
    if entry.replayed_at:
        yield "last replay", with_age(entry.replayed_at)


def _shortened(value: str) -> str:
    from ingest.cli.terminal.text import printable

    rest = len(value) - _LONGEST_FIELD
    return printable(value[:_LONGEST_FIELD]) + (f"… and {rest:,} characters: --json shows all" if rest > 0 else "")
