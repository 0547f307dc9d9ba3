"""Finds, surveys, replays, drops and exports dead letters.

Replaying, dropping and surveying wait while Redis is unavailable or full. Finding and exporting raise `QueueUnavailable`. If the
process dies here, each dead letter is either moved or untouched.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ingest.domain.deliveries.dead_letter import DeadLetterEntry, Selection
from ingest.domain.deliveries.entry_fields import FORMER_ORIGIN, ORIGIN
from ingest.operations.backends import Backends
from ingest.queue.operate.dead_letters import Change, DeadLetterPage, DeadLetters
from ingest.queue.operate.partitioned.dead_letters import PartitionedDeadLetters, TotalSurvey
from ingest.queue.operate.partitioned.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client

if TYPE_CHECKING:
    from ingest.queue.operate.dead_letter_pages import Row

Write = Callable[[str, Sequence[DeadLetterEntry]], None]
"""Called with a source and some of its dead letters. They are not kept, so that many large dead letters take little memory."""

OnProgress = Callable[[int, int], None]
"""Called with the number of dead letters examined so far and the total."""

Pages = AsyncGenerator[tuple[str, DeadLetterPage], None]
"""Pages of dead letters, each with its source."""

# A source and one of its partitions.
_Part = tuple[str, str]


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
    sources: Sequence[Backends], selection: Selection, write: Write, *, limit: int, on_progress: OnProgress = _ignore
) -> WrittenDeadLetters:
    """Pass the newest dead letters that match to `write`, at most `limit`, without their documents and unknown fields."""
    async with _open_all(sources) as opened:
        pages = newest_of_all({part: each.newest_summaries(selection) for part, each in opened.items()})
        return await _write(opened.values(), pages, selection, write, limit, on_progress)


async def read(
    sources: Sequence[Backends],
    selection: Selection,
    write: Write,
    *,
    limit: int | None = None,
    on_progress: OnProgress = _ignore,
) -> WrittenDeadLetters:
    """Pass the newest dead letters that match to `write`, at most `limit`, with all their fields."""
    async with _open_all(sources) as opened:
        pages = newest_of_all({part: each.newest_first(selection) for part, each in opened.items()})
        return await _write(opened.values(), pages, selection, write, limit, on_progress)


async def export(
    sources: Sequence[Backends], selection: Selection, write: Write, *, on_progress: OnProgress = _ignore
) -> WrittenDeadLetters:
    """Pass all dead letters that match to `write` with all their fields, partition by partition, the oldest of each first.

    Entries that are dead-lettered after the start are left out, because otherwise an export could go on indefinitely while orders fail.
    """
    async with _open_all(sources) as opened:
        newest = {part: await each.newest() for part, each in opened.items()}
        pages = _one_after_another(
            {part: each.oldest_first(selection, newest=newest[part]) for part, each in opened.items()}
        )
        return await _write(opened.values(), pages, selection, write, None, on_progress)


async def newest_of_all(parts: Mapping[_Part, AsyncGenerator[DeadLetterPage, None]]) -> Pages:
    """Merge the dead letters of several partitions, each newest first. It holds one page of each partition."""
    async with AsyncExitStack() as stack:
        for pages in parts.values():
            await stack.enter_async_context(aclosing(pages))
        held: dict[_Part, Sequence[Row]] = dict.fromkeys(parts, ())
        while held:
            for part in [part for part, rows in held.items() if not rows]:
                if (page := await anext(parts[part], None)) is None:
                    del held[part]
                else:
                    held[part] = page.rows
                    yield part[0], DeadLetterPage((), page.examined)
            if held and all(held.values()):
                part = max(held, key=lambda each: held[each][0][0].dead_at)
                newest, *held[part] = held[part]
                yield part[0], DeadLetterPage([newest], 0)


async def _one_after_another(parts: Mapping[_Part, AsyncGenerator[DeadLetterPage, None]]) -> Pages:
    for (source, _), pages in parts.items():
        async with aclosing(pages):
            async for page in pages:
                yield source, page


async def _write(
    dead_letters: Iterable[DeadLetters],
    pages: Pages,
    selection: Selection,
    write: Write,
    limit: int | None,
    on_progress: OnProgress,
) -> WrittenDeadLetters:
    total = sum([await each.count() for each in dead_letters])
    named: set[str] = set()
    count = examined = 0
    async with aclosing(pages):
        async for source, page in pages:
            entries = page.entries if limit is None else page.entries[: limit - count]
            if entries:
                write(source, entries)
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
) -> TotalSurvey:
    """Count the dead letters that match, by reason."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.survey(selection, on_progress=on_progress)


async def replay(
    backends: Backends,
    selection: Selection,
    *,
    newest: Mapping[str, str] | None = None,
    on_progress: Callable[[Change], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Change:
    """Put matching dead letters back into the queue, up to `newest`. See `PartitionedDeadLetters.replay`."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.replay(selection, newest=newest, on_progress=on_progress)


async def drop(
    backends: Backends,
    selection: Selection,
    *,
    newest: Mapping[str, str] | None = None,
    on_progress: Callable[[Change], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Change:
    """Delete matching dead letters, up to `newest`. See `PartitionedDeadLetters.drop`."""
    async with _open(backends, on_wait) as dead_letters:
        return await dead_letters.drop(selection, newest=newest, on_progress=on_progress)


def as_object(entry: DeadLetterEntry, source: str) -> dict[str, Any]:
    """Convert a dead letter of a source for JSON. The entry's other fields are grouped in `fields`."""
    return {
        "id": entry.entry_id,
        "source": source,
        "order_id": entry.order_id,
        "reason": entry.reason,
        "error": entry.error,
        "attempts": entry.attempts,
        "dead_at": json_time(entry.dead_at),
        "first_enqueued_at": json_time(entry.first_enqueued_at),
        "worker": entry.worker,
        "replays": entry.replays,
        "replayed_at": json_time(entry.replayed_at),
        "fields": texts(_with_current_names(entry.fields)),
    }


def _with_current_names(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Name the fields of an entry of an earlier release as this release does."""
    if FORMER_ORIGIN not in fields or ORIGIN in fields:
        return fields
    return {ORIGIN if name == FORMER_ORIGIN else name: value for name, value in fields.items()}


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode an entry's fields. Bytes that are not UTF-8 become backslash escapes."""
    return {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in fields.items()
    }


def json_time(moment: datetime | None) -> str | None:
    """Convert a time for JSON: in UTC, with milliseconds."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@asynccontextmanager
async def _open(backends: Backends, on_wait: Callable[[str], None]) -> AsyncIterator[PartitionedDeadLetters]:
    async with control_client(backends.redis_url) as client:
        layout = layout_reader(client, backends.stream)
        yield PartitionedDeadLetters(client, layout, group=backends.group, on_wait=on_wait)


@asynccontextmanager
async def _open_all(sources: Sequence[Backends]) -> AsyncIterator[dict[_Part, DeadLetters]]:
    """The dead letters of each partition of each source, with the same connections, because sources share one Redis."""
    async with control_client(sources[0].redis_url) as client:
        opened: dict[_Part, DeadLetters] = {}
        for each in sources:
            dead_letters = PartitionedDeadLetters(client, layout_reader(client, each.stream), group=each.group)
            opened |= {(each.source, queue): part for queue, part in (await dead_letters.by_queue()).items()}
        yield opened
