"""The dead letters of `ingest dead list` in as many columns as there are: the error on a line of its own where they are few."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO

from rich.cells import cell_len, set_cell_size

from ingest.cli.dead.moments import age
from ingest.cli.dead.texts import printable
from ingest.cli.terminal import width_of
from ingest.domain.dead_letter import DeadLetterEntry

_HEADER = ("id", "order", "reason", "attempts", "dead since", "replays", "error")
# The columns that stay together, and apart from the error, on a narrow terminal.
_FACTS = 5
_BETWEEN = "  "
_LONGEST_ERROR = 100

Row = tuple[str, ...]


def print_rows(letters: Sequence[DeadLetterEntry], now: datetime, stream: IO[str]) -> None:
    """Print them on `stream`, with a header."""
    stream.writelines(line + "\n" for line in lines_of([_row(letter, now) for letter in letters], width_of(stream)))


def lines_of(rows: Sequence[Row], width: int) -> Iterator[str]:
    """The lines, none wider than `width` but for an order ID.

    Beside each other if all fits; else the error below; else the order alone above all else.
    """
    whole = _aligned([_HEADER, *rows])
    if max(map(cell_len, whole)) <= width:
        yield from whole
        return
    facts = _aligned([_HEADER[:_FACTS], *(row[:_FACTS] for row in rows)])
    if max(map(cell_len, facts)) <= width:
        yield facts[0]
        for row, line in zip(rows, facts[1:], strict=True):
            yield line
            yield from _below(row, width)
        return
    for row, rest in zip(rows, _aligned([row[2:_FACTS] for row in rows]), strict=True):
        yield f"{row[0]}{_BETWEEN}{row[1]}"
        yield _BETWEEN + rest
        yield from _below(row, width)


def _row(letter: DeadLetterEntry, now: datetime) -> Row:
    return (
        letter.entry_id,
        printable(letter.order_id or "", 64),
        printable(letter.reason, 64),
        "" if letter.attempts is None else str(letter.attempts),
        age(letter.dead_at, now),
        _replays(letter, now),
        printable(letter.error, _LONGEST_ERROR),
    )


def _replays(letter: DeadLetterEntry, now: datetime) -> str:
    if not letter.replays:
        return ""
    return f"{letter.replays}, {age(letter.replayed_at, now)}" if letter.replayed_at else str(letter.replays)


def _below(row: Row, width: int) -> Iterator[str]:
    *_, replays, error = row
    told = _BETWEEN + (f"replayed {replays}: " if replays else "") + error
    if told.strip():
        yield told if cell_len(told) <= width else set_cell_size(told, width - 1).rstrip() + "…"


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        _BETWEEN.join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
