"""Searches for dead letters with progress, and prints them as JSON."""

import json
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import IO, Any

from msgspec.structs import asdict

from ingest.cli.queues.entry_lists import say_missing, unavailable_lines
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.progress import run_with_progress
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.operations.audit import Reader
from ingest.operations.backends import Backends
from ingest.operations.failed_orders import dead_letters
from ingest.operations.failed_orders.dead_letters import WrittenDeadLetters
from ingest.operations.failed_orders.entry_json import shown


def search(
    find: Callable[..., Coroutine[Any, Any, WrittenDeadLetters]],
    *,
    activity: str = "searching",
    data_stream: IO[str] | None = None,
) -> WrittenDeadLetters:
    """Search for dead letters, and report IDs that match none, and partitions that cannot be read.

    Args:
        find: passes them on, and calls `on_progress`.
        activity: for the progress.
        data_stream: where they are written at the same time.
    """
    found = run_with_progress(activity, find, data_stream=data_stream)
    say_missing(EntryKind.DEAD_LETTERS, found.missing, found.unavailable)
    return found


def exit_code_of(found: WrittenDeadLetters) -> int:
    """1 if an ID has no dead letter, or dead letters are missing because a partition cannot be read."""
    return 1 if found.missing or found.unavailable else 0


def print_json(
    sources: Sequence[Backends], selection: Selection, reader: Reader, limit: int | None = None
) -> WrittenDeadLetters:
    """Print one JSON object per line for each of the newest dead letters that match, and for each partition that cannot be read."""
    with standard_output() as stream:
        find = partial(dead_letters.find, sources, selection, json_writer(stream), limit=limit, reader=reader)
        found = search(find, data_stream=stream)
        stream.writelines(unavailable_lines(found.unavailable))
        return found


def json_writer(stream: IO[str]) -> dead_letters.Write:
    """Write one JSON object per line, in ASCII: safe in any terminal and encoding."""

    def write(source: str, entries: Sequence[DeadLetterEntry]) -> None:
        stream.writelines(json.dumps(asdict(shown(entry, source))) + "\n" for entry in entries)

    return write
