"""Reads the IDs in a column of a CSV file.

A quote that is never closed makes everything up to the next quote, or to the end of the file, one field. A reader that accepts
such a field loses orders without an error. So fields of several lines are checked, and reading stops at a field that cannot be
right. The length of a record is limited: memory does not grow with the file.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice

from ingest.cli.orders.id_sources.found import LONGEST_LINE, Found, UnreadableSource
from ingest.cli.terminal.text import printable
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

# N lines in a row that are orders by themselves are not the text of one quoted field.
_ALIKE = 3
_NAMES_SHOWN = 10


def read_column(lines: Iterator[Found], column: str, name: str) -> Iterator[Found]:
    """Yield the values of the column, record by record.

    Args:
        lines: the file's lines.
        column: the column's name in the header.
        name: the file's name, for messages.

    Raises:
        UnreadableSource: there is no such column, or a quote is not closed. The message contains the line where it opens.
    """
    csv.field_size_limit(LONGEST_LINE)
    feed = _Feed(lines, name)
    rows = csv.reader(feed, strict=True)
    header = _header(feed, rows, column, name)
    at = feed.column = header.index(column)
    feed.width = len(header)
    while True:
        feed.start_record()
        try:
            row = next(rows, None)
        except csv.Error as error:
            if feed.opened:
                raise feed.unclosed() from error
            # The reader starts again with the next line.
            yield feed.found(None, f"malformed CSV: {error}")
            continue
        if row is None:
            return
        feed.check(row)
        if not row and not feed.problem:
            continue
        if at and any(row[feed.width :]):
            # Such as a comma in a text without quotes: the values behind it stand in other columns.
            feed.problem = (
                feed.problem or f"{len(row)} values in {feed.width} columns (a text with a comma has to be quoted)"
            )
        text = row[at].strip() if at < len(row) and not feed.problem else None
        yield feed.found(text, feed.problem or f"no value in column {column!r}")


def _header(feed: "_Feed", rows: Iterator[list[str]], column: str, name: str) -> list[str]:
    feed.start_record()
    try:
        header = [title.strip() for title in next(rows, [])]
    except csv.Error as error:
        raise feed.unclosed() if feed.opened else UnreadableSource(f"line {feed.line} of {name}: {error}") from error
    if feed.problem:
        raise UnreadableSource(f"line {feed.line} of {name}: {feed.problem}")
    if column not in header:
        raise UnreadableSource(f"{name} has no column {column!r}; it has: {_listed(header)}")
    return header


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(printable(name, 40) for name in islice(names, _NAMES_SHOWN))
    return (shown or "nothing") + (f" and {more:,} more" if more > 0 else "")


class _Feed:
    """Passes lines to the CSV reader, and keeps the line on which an open quote began.

    The reader asks for a second line of a record only if the first ended within quotes.

    Attributes:
        width: how many fields the header has.
        column: which of them holds the ID.
        line: the number of the last line.
        opened: for a record of several lines, the line of the last quote that is not closed on its line, or 0.
        problem: why a line of this record cannot be read.
    """

    def __init__(self, lines: Iterator[Found], name: str) -> None:
        self.width = 1
        self.column = 0
        self.line = 0
        self.opened = 0
        self.problem = ""
        self._lines = lines
        self._name = name
        self._text = ""
        self._position = 0
        self._started_at: int | None = None
        self._inside = self._alike = 0

    def start_record(self) -> None:
        """Begin the next record."""
        self.opened = self._inside = self._alike = 0
        self.problem = ""
        self._started_at = None

    def found(self, text: str | None, problem: str) -> Found:
        """The values in the record."""
        return Found(self.line, text, problem, self._position)

    def check(self, row: Sequence[str]) -> None:
        """Reject a record of several lines that begins and ends with quotes of two different records.

        Raises:
            UnreadableSource: it does not have as many fields as the header, or its lines are orders themselves.
        """
        self._check_inside()
        if self.opened and len(row) != self.width:
            raise self.unclosed()

    def unclosed(self) -> UnreadableSource:
        """The error for the open quote."""
        return UnreadableSource(
            f"line {self.opened} of {self._name}: a quote opens here and is not closed before line {self.line + 1}"
            " (a quote within a text has to be doubled)"
        )

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        if self._started_at is None:
            self._started_at = self._position
        else:
            self._continue_record()
        found = next(self._lines)
        self.line, self._position = found.line, found.position
        if found.position - self._started_at > LONGEST_LINE and self.opened:
            raise self.unclosed()
        # A line that is not text counts as empty. Its record is reported.
        self.problem = self.problem or found.problem
        self._text = found.text or ""
        return self._text + "\n"

    def _continue_record(self) -> None:
        """Handle a line that ended within quotes."""
        # A quote that is not doubled ends the field in which the line began, so that another field has opened.
        if not self.opened or '"' in self._text.replace('""', ""):
            self._check_inside()
            self.opened, self._inside, self._alike = self.line, 0, 0
        else:
            self._inside += 1
            self._alike += self._is_order(self._text)

    def _check_inside(self) -> None:
        if self._inside >= _ALIKE and self._inside == self._alike:
            raise self.unclosed()

    def _is_order(self, line: str) -> bool:
        try:
            (row,) = csv.reader([line])
            # An ID may contain blanks, but a text with blanks is rather a sentence.
            return len(row) == self.width and " " not in parse_order_id(row[self.column].strip())
        except (csv.Error, InvalidOrderId):
            return False
