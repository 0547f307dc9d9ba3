"""Finds, surveys, replays, drops and exports dead letters.

Replaying, dropping and surveying wait while Redis is unavailable or full. Finding and exporting raise `QueueUnavailable`. If the
process dies here, each dead letter is either moved or untouched.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ingest.domain.deliveries.dead_letter import DeadLetterEntry, Selection
from ingest.operations.backends import Backends
from ingest.queue.operate.dead_letters import Change, DeadLetterPage, DeadLetters, Survey

Write = Callable[[Sequence[DeadLetterEntry]], None]
"""Called with each page of matches. Pages are not kept, so that many large dead letters take little memory."""

OnProgress = Callable[[int, int], None]
"""Called with the number of dead letters examined so far and the total."""


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class WrittenDeadLetters:
    """The result of a search or an export.

    Attributes:
        count: dead letters written.
        has_more: whether more dead letters match than the limit allows.
        missing: IDs of the selection without a matching dead letter. Empty if `has_more` is true.
    """

    count: int
    has_more: bool
    missing: frozenset[str]


async def find(
    backends: Backends, selection: Selection, write: Write, *, limit: int, on_progress: OnProgress = _ignore
) -> WrittenDeadLetters:
    """Pass the newest dead letters that match to `write`, at most `limit`, without their documents and unknown fields."""
    async with _open(backends) as dead_letters:
        pages = dead_letters.newest_summaries(selection)
        return await _write(dead_letters, pages, selection, write, limit, on_progress)


async def read(
    backends: Backends,
    selection: Selection,
    write: Write,
    *,
    limit: int | None = None,
    on_progress: OnProgress = _ignore,
) -> WrittenDeadLetters:
    """Pass the newest dead letters that match to `write`, at most `limit`, with all their fields."""
    async with _open(backends) as dead_letters:
        pages = dead_letters.newest_first(selection)
        return await _write(dead_letters, pages, selection, write, limit, on_progress)


async def export(
    backends: Backends, selection: Selection, write: Write, *, on_progress: OnProgress = _ignore
) -> WrittenDeadLetters:
    """Pass all dead letters that match to `write`, oldest first, with all their fields.

    Entries that are dead-lettered after the start are left out, because otherwise an export could go on indefinitely while orders fail.
    """
    async with _open(backends) as dead_letters:
        pages = dead_letters.oldest_first(selection, newest=await dead_letters.newest())
        return await _write(dead_letters, pages, selection, write, None, on_progress)


async def _write(
    dead_letters: DeadLetters,
    pages: AsyncGenerator[DeadLetterPage, None],
    selection: Selection,
    write: Write,
    limit: int | None,
    on_progress: OnProgress,
) -> WrittenDeadLetters:
    total = await dead_letters.count()
    named: set[str] = set()
    count = examined = 0
    async with aclosing(pages):
        async for page in pages:
            entries = page.entries if limit is None else page.entries[: limit - count]
            write(entries)
            if len(entries) < len(page.entries):
                return WrittenDeadLetters(count + len(entries), has_more=True, missing=frozenset())
            named.update(*(selection.names(entry) for entry in entries))
            count += len(entries)
            examined += page.examined
            on_progress(examined, total)
    return WrittenDeadLetters(count, has_more=False, missing=selection.ids - named)


async def survey(
    backends: Backends,
    selection: Selection,
    *,
    on_progress: Callable[[int], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Survey:
    """Count the dead letters that match, by reason."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.survey(selection, on_progress=on_progress)


async def replay(
    backends: Backends,
    selection: Selection,
    *,
    newest: str | None = None,
    on_progress: Callable[[Change], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Change:
    """Put matching dead letters back into the queue, up to `newest`. See `DeadLetters.replay`."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.replay(selection, newest=newest, on_progress=on_progress)


async def drop(
    backends: Backends,
    selection: Selection,
    *,
    newest: str | None = None,
    on_progress: Callable[[Change], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Change:
    """Delete matching dead letters, up to `newest`. See `DeadLetters.drop`."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.drop(selection, newest=newest, on_progress=on_progress)


def as_object(entry: DeadLetterEntry) -> dict[str, Any]:
    """Convert a dead letter for JSON. The entry's other fields are grouped in `fields`."""
    return {
        "id": entry.entry_id,
        "order_id": entry.order_id,
        "reason": entry.reason,
        "error": entry.error,
        "attempts": entry.attempts,
        "dead_at": json_time(entry.dead_at),
        "first_enqueued_at": json_time(entry.first_enqueued_at),
        "worker": entry.worker,
        "replays": entry.replays,
        "replayed_at": json_time(entry.replayed_at),
        "fields": texts(entry.fields),
    }


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode an entry's fields. Bytes that are not UTF-8 become backslash escapes."""
    return {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in fields.items()
    }


def json_time(moment: datetime | None) -> str | None:
    """Convert a time for JSON: in UTC, with milliseconds."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _open(backends: Backends, on_wait: Callable[[str], None] = _ignore) -> AbstractAsyncContextManager[DeadLetters]:
    return DeadLetters.connect(backends.redis_url, backends.stream, group=backends.group, on_wait=on_wait)
