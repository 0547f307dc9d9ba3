"""The width of the output, and what depends on it: tables and line breaks.

A terminal has a width; a pipe has one only if COLUMNS is set.
"""

import os
import textwrap
from collections.abc import Sequence
from typing import IO, Any

# Lines for a program may be as long as necessary.
UNBOUNDED = 10_000
# A smaller width was set by mistake.
_NARROWEST = 20


def width_of(stream: IO[str]) -> int:
    """The number of columns: COLUMNS, otherwise the terminal's; a pipe or a file is unbounded."""
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


def wrapped(line: str, stream: IO[str]) -> str:
    """A line of text, broken between words if `stream` is a terminal that would break it within a word.

    A word that is longer than a line (a URL, a path) stays whole: the terminal wraps it, and it can be copied.
    """
    if not stream.isatty() or len(line) <= (width := width_of(stream)):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
