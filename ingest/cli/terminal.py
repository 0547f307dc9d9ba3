"""Where output goes decides how wide it is: a terminal has a width, and so has a pipe where COLUMNS says so."""

import os
import textwrap
from typing import IO, Any

# A line that is read by a program is as long as it has to be.
UNBOUNDED = 10_000
# What is narrower than that has been set by mistake.
_NARROWEST = 20


def width_of(stream: IO[str]) -> int:
    """How many columns there are: by COLUMNS, or else the terminal's; a pipe or a file has no end of line."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told) >= _NARROWEST:
        return int(told)
    try:
        wide = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return UNBOUNDED
    return wide if wide >= _NARROWEST else 80


def console_on(stream: IO[str]) -> Any:
    """What draws tables on `stream`."""
    from rich.console import Console

    return Console(file=stream, width=width_of(stream), highlight=False)


def wrapped(line: str, stream: IO[str]) -> str:
    """One line of text, broken between words where a terminal would break it within one.

    What is longer than a line (a URL, a path) stays whole: the terminal wraps it, and it can be copied.
    """
    if not stream.isatty() or len(line) <= (width := width_of(stream)):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
