"""Formats the findings of checks."""

import os
import textwrap
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import typer

from ingest.cli.terminal.text import printable

if TYPE_CHECKING:
    from ingest.operations.doctor.finding import Finding

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
"""The colours of the levels."""


def colours_on(stream: IO[str]) -> bool:
    """Whether the stream is a terminal that displays colours, and the user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def lines_of(finding: "Finding", width: int, *, is_coloured: bool) -> Iterator[str]:
    """The finding, and below it what to do, both as wide as the output."""
    head, level = f"{finding.level:<9}{finding.area:<10}", str(finding.level)
    indent = " " * len(head)
    what = f"{finding.source}: {finding.what}" if finding.source else finding.what
    lines = _wrapped(what, width, head, indent)
    if is_coloured:
        lines[0] = typer.style(level, fg=COLOURS[level]) + lines[0][len(level) :]
    yield from lines
    if finding.advice:
        yield from _wrapped(finding.advice, width, f"{indent}-> ", f"{indent}   ")


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    """The text in lines, the first and the others with their beginnings."""
    one_line = printable(" ".join(text.split()), 1_000)
    return textwrap.wrap(
        one_line,
        max(width, 40),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
