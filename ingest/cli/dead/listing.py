"""A limited number of dead letters: searched for, and printed as JSON or as a table.

The table shows the columns that fit the terminal. On a narrow one, the error is on a separate line.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import IO

from ingest.cli.common import say
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_age
from ingest.cli.terminal.width import Table, width_of
from ingest.domain.deliveries.dead_letter import DeadLetterEntry, Selection
from ingest.operations import dead_letters
from ingest.operations.backends import Backends
from ingest.operations.dead_letters import WrittenDeadLetters
from ingest.process.interrupt import run_interruptible

_TABLE = Table(("id", "order", "reason", "attempts", "dead since", "replays", "error"), names=2, facts=5)
_LONGEST_ERROR = 100

Row = tuple[str, ...]


async def search(backends: Backends, selection: Selection, write: dead_letters.Write, limit: int) -> WrittenDeadLetters:
    """Search for the newest dead letters that match, without their documents, and report IDs that match none."""
    with ProgressDisplay("searching") as display:
        found = await dead_letters.find(backends, selection, write, limit=limit, on_progress=display.update)
    report_missing(found.missing)
    return found


async def read(
    backends: Backends, selection: Selection, write: dead_letters.Write, stream: IO[str], limit: int | None = None
) -> WrittenDeadLetters:
    """As `search`, with all their fields. They are written to `stream`."""
    with ProgressDisplay("searching", beside=stream) as display:
        found = await dead_letters.read(backends, selection, write, limit=limit, on_progress=display.update)
    report_missing(found.missing)
    return found


def report_missing(ids: frozenset[str]) -> None:
    """Print which IDs have no dead letter, or none that meets the other criteria."""
    for missing in sorted(ids):
        say(f"no dead letter for {printable(missing)}")


def json_line(entry: DeadLetterEntry) -> str:
    """One JSON object on one line, in ASCII: safe in any terminal and encoding."""
    return json.dumps(dead_letters.as_object(entry)) + "\n"


def print_json(backends: Backends, selection: Selection, limit: int | None = None) -> WrittenDeadLetters:
    """Print one JSON object per line for each of the newest dead letters that match."""
    with standard_output() as stream:
        return run_interruptible(
            read(backends, selection, lambda entries: stream.writelines(map(json_line, entries)), stream, limit)
        )


def print_table(backends: Backends, selection: Selection, limit: int) -> WrittenDeadLetters:
    """Print a table with a header of the newest dead letters that match."""
    now = datetime.now(UTC)
    rows: list[Row] = []
    found = run_interruptible(
        search(backends, selection, lambda entries: rows.extend(_row(entry, now) for entry in entries), limit)
    )
    if rows:
        with standard_output() as stream:
            stream.writelines(line + "\n" for line in lines_of(rows, width_of(stream)))
    return found


def lines_of(rows: Sequence[Row], width: int) -> Iterator[str]:
    """The table's lines, none wider than `width` unless its IDs are. On a narrow terminal, replays and errors are below."""
    return _TABLE.lines(rows, list(map(_below, rows)), width)


def _row(entry: DeadLetterEntry, now: datetime) -> Row:
    return (
        entry.entry_id,
        printable(entry.order_id or "", 64),
        printable(entry.reason, 64),
        "" if entry.attempts is None else str(entry.attempts),
        format_age(entry.dead_at, now),
        _replays(entry, now),
        printable(entry.error, _LONGEST_ERROR),
    )


def _replays(entry: DeadLetterEntry, now: datetime) -> str:
    if not entry.replays:
        return ""
    return f"{entry.replays}, {format_age(entry.replayed_at, now)}" if entry.replayed_at else str(entry.replays)


def _below(row: Row) -> str:
    *_, replays, error = row
    return (f"replayed {replays}: " if replays else "") + error
