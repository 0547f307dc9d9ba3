"""Writes dead letters as JSON lines or CSV, with all their fields."""

import csv
import io
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing

from msgspec.structs import asdict

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.domain.printable import cell
from ingest.operations.failed_orders.dead_letters import contains
from ingest.operations.failed_orders.entry_json import shown
from ingest.queue.operate.failed.dead_letter_pages import is_entry_id
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters

FORMATS: Mapping[str, str] = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
"""The media type of each format."""

_CSV_COLUMNS = ("id", "source", "order_id", "reason", "error", "attempts", "dead_at", "first_enqueued_at", "worker", "seen", "last_seen_at", "replays", "replayed_at", "fields")  # fmt: skip


def head_of(file_format: str) -> str:
    """Return the beginning of a file: the names of the columns in CSV."""
    return _csv([_CSV_COLUMNS]) if file_format == "csv" else ""


def lines_of(entries: Iterable[DeadLetterEntry], source: str, file_format: str) -> str:
    """Return the lines of dead letters of a source. JSON is in ASCII, which is safe in any terminal and encoding."""
    if file_format == "csv":
        return _csv(_csv_row(entry, source) for entry in entries)
    return "".join(json.dumps(asdict(shown(entry, source))) + "\n" for entry in entries)


def exported_in(line: str, file_format: str) -> tuple[str, str] | None:
    """Return the source and the ID of the dead letter in a line of a file, or None if it is none."""
    try:
        row = (
            dict(zip(_CSV_COLUMNS, next(csv.reader([line])), strict=True)) if file_format == "csv" else json.loads(line)
        )
        source, entry_id = row["source"], row["id"]
    except (ValueError, LookupError, TypeError, StopIteration, csv.Error):
        return None
    return (source, entry_id) if is_entry_id(str(entry_id).partition(":")[0]) else None


def _csv_row(entry: DeadLetterEntry, source: str) -> list[str]:
    facts = asdict(shown(entry, source))
    facts["fields"] = json.dumps(facts["fields"])
    return [cell(facts[column]) for column in _CSV_COLUMNS]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


async def exported(
    dead_letters: DeadLetters, selection: Selection, source: str, file_format: str, after: str | None = None
) -> tuple[AsyncGenerator[bytes, None], Sequence[PartitionTrouble]]:
    """Return the parts of a file with all dead letters that match, partition by partition, the oldest of each first.

    Dead letters that are added after the start are left out. The returned partitions cannot be read, and their dead letters are
    missing. Close the generator if you stop early.

    Args:
        dead_letters: of the source.
        selection: which dead letters.
        source: the name of the source.
        file_format: one of `FORMATS`.
        after: the ID of the last dead letter of an earlier file, which the new one continues.

    Raises:
        QueueUnavailable: no server can be used, or the partition of `after` cannot be read.
    """
    reached = await dead_letters.reached(PartitionDeadLetters.newest)
    parts = [*reached.found.values()]
    first = 0 if after is None else next((at for at, (part, _) in enumerate(parts) if contains(part, after)), None)
    if first is None and reached.missing:
        raise QueueUnavailable(reached.missing[0].text)
    return _contents(parts[first:], selection, source, file_format, after), reached.missing


async def _contents(
    parts: Iterable[tuple[PartitionDeadLetters, str]],
    selection: Selection,
    source: str,
    file_format: str,
    after: str | None,
) -> AsyncGenerator[bytes, None]:
    yield head_of(file_format).encode() if after is None else b""
    position = "" if after is None else after.partition(":")[0]
    for part, newest in parts:
        async with aclosing(part.oldest_first(selection, newest=newest, after=position)) as pages:
            async for page in pages:
                content = lines_of(page.entries, source, file_format).encode()
                # While a client reads the lines, they need memory, and no longer the entries.
                del page
                yield content
        position = ""
