"""The width of the output, and what depends on it: tables and line breaks.

A terminal has a width. A pipe has one only if COLUMNS is set.
"""

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

# Lines for a program may be as long as necessary.
UNBOUNDED = 10_000
# A smaller width was set by mistake.
_NARROWEST = 20
_BETWEEN = "  "


def width_of(stream: IO[str]) -> int:
    """The number of columns: COLUMNS, otherwise the terminal's. A pipe or a file is unbounded."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) >= _NARROWEST:
        return int(columns)
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return UNBOUNDED
    return width if width >= _NARROWEST else 80


def console_on(stream: IO[str]) -> Any:
    """A Rich console that writes to `stream`."""
    from rich.console import Console

    return Console(file=stream, width=width_of(stream), highlight=False)


def aligned(rows: Sequence[Sequence[str]], between: str) -> list[str]:
    """The rows of a table as lines, each column as wide as its widest cell."""
    from rich.cells import cell_len, set_cell_size

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        between.join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose last columns are long.

    Attributes:
        header: of all columns.
        names: the first columns, which identify the row.
        facts: the first columns that stay together on a narrow terminal.
    """

    header: Sequence[str]
    names: int
    facts: int

    def with_column(self, name: str) -> "Table":
        """The table with a first column that belongs to the names."""
        return Table((name, *self.header), self.names + 1, self.facts + 1)

    def lines(self, rows: Sequence[Sequence[str]], below: Sequence[str], width: int) -> Iterator[str]:
        """The table's lines, none wider than `width` unless its names are.

        One line per row if all columns fit. Otherwise the columns of `below` are below the row, or the names are above everything else.
        """
        from rich.cells import cell_len

        whole = aligned([self.header, *rows], _BETWEEN)
        if max(map(cell_len, whole)) <= width:
            yield from whole
            return
        facts = aligned([self.header[: self.facts], *(row[: self.facts] for row in rows)], _BETWEEN)
        if max(map(cell_len, facts)) <= width:
            yield facts[0]
            for line, rest in zip(facts[1:], below, strict=True):
                yield line
                yield from _cut(rest, width)
            return
        for row, rest in zip(rows, below, strict=True):
            yield _BETWEEN.join(row[: self.names])
            yield from _cut(_BETWEEN.join(filter(None, row[self.names : self.facts])), width)
            yield from _cut(rest, width)


def _cut(text: str, width: int) -> Iterator[str]:
    from rich.cells import cell_len, set_cell_size

    line = _BETWEEN + text
    if text.strip():
        yield line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"


def wrapped(line: str, stream: IO[str], indent: str = "") -> str:
    """A line of text, broken between words if `stream` is a terminal that would break it within a word.

    The lines after the first begin with `indent`.
    A word that is longer than a line (a URL, a path) stays whole: the terminal wraps it, and it can be copied.
    """
    if not stream.isatty() or len(line) <= (width := width_of(stream)):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def broken(lines: Iterable[str], width: int) -> Iterator[str]:
    """The lines, broken between words where they are wider than `width`."""
    for line in lines:
        yield from textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
