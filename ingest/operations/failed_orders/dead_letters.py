"""Finds, replays and exports dead letters.

Replaying waits while Redis is unavailable or full. Finding and exporting omit the partitions that cannot be used, and report them. If the process dies here, each dead letter is either moved or untouched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import UserError
from ingest.domain.operating.jobs import JobKind
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.audit import Reader, record_read_of
from ingest.operations.backends import Backends
from ingest.operations.declared import EXPORT, READ_DEAD_LETTER
from ingest.operations.failed_orders.dead_letter_parts import (
    Pages,
    Part,
    newest_of_all,
    one_after_another,
    open_reachable,
    paced,
)
from ingest.queue.operate.failed.dead_letter_pages import PAGE
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import Change, PartitionDeadLetters
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client

Write = Callable[[str, Sequence[DeadLetterEntry]], None]
"""Called with a source and some of its dead letters. They are not kept, so that many large dead letters take little memory."""

Exported = Mapping[tuple[str, str], str]
"""The last exported dead letter of each source and suffix of a partition, without the suffix. They are in the order in which they were written."""

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
        missing: IDs of the selection without a matching dead letter. Empty if `has_more` is true, or a partition is unavailable.
        unavailable: partitions whose dead letters are missing, because Redis cannot be used there, with the reason.
    """

    count: int
    has_more: bool
    missing: frozenset[str]
    unavailable: Mapping[Part, str] = field(default_factory=dict)


async def find(
    sources: Sequence[Backends],
    selection: Selection,
    write: Write,
    *,
    reader: Reader | None = None,
    limit: int | None = None,
    on_progress: OnProgress = _ignore,
) -> WrittenDeadLetters:
    """Pass the newest dead letters that match to `write`, at most `limit`.

    A reader gets all their fields, and is recorded. Without one, their documents and unknown fields are left out.
    """
    if reader is not None:
        await record_read_of(sources, reader, READ_DEAD_LETTER, selection_as_dict(selection))
    read = PartitionDeadLetters.newest_summaries if reader is None else PartitionDeadLetters.newest_first
    async with open_reachable(sources) as (opened, unavailable):
        pages = newest_of_all({part: read(each, selection) for part, each in opened.items()}, unavailable)
        found = await _write(opened.values(), pages, selection, write, limit, on_progress)
        return _without(unavailable, found)


async def export(
    sources: Sequence[Backends],
    selection: Selection,
    write: Write,
    *,
    reader: Reader,
    after: Exported | None = None,
    rate: float | None = None,
    on_progress: OnProgress = _ignore,
) -> WrittenDeadLetters:
    """Pass all dead letters that match to `write` with all their fields, partition by partition, the oldest of each first.

    Entries that are dead-lettered after the start are left out, because otherwise an export could continue indefinitely while
    orders fail.

    With `after`, it continues an interrupted export, which may lack partitions. `rate` limits the dead letters per second. Who reads them
    is recorded.

    Raises:
        UserError: the sources do not have the queue of the last dead letter in `after`.
        QueueUnavailable: no server can be used, or one of them fails during the export.
    """
    await record_read_of(sources, reader, EXPORT, selection_as_dict(selection))
    async with open_reachable(sources) as (opened, unavailable):
        newest = {part: await each.newest() for part, each in opened.items()}
        positions = {part: (after or {}).get((part[0], each.id_suffix), "") for part, each in opened.items()}
        if after and not unavailable and not any((part[0], opened[part].id_suffix) == [*after][-1] for part in opened):
            raise UserError("the sources have no queue of the dead letter with which the interrupted export ends")
        most = PAGE if rate is None else max(1, min(PAGE, int(rate)))
        pages = one_after_another(
            {
                part: opened[part].oldest_first(selection, newest=newest[part], after=position, most=most)
                for part, position in positions.items()
            }
        )
        if rate is not None:
            pages = paced(pages, rate)
        return _without(unavailable, await _write(opened.values(), pages, selection, write, None, on_progress))


def contains(part: PartitionDeadLetters, entry_id: str) -> bool:
    """Whether an ID, as `DeadLetterEntry.entry_id`, is of this partition."""
    return part.id_suffix == suffix_of(entry_id)


def suffix_of(entry_id: str) -> str:
    """Return the suffix of the partition in an ID, as `DeadLetterEntry.entry_id`."""
    return entry_id[len(entry_id.partition(":")[0]) :]


def _without(unavailable: Mapping[Part, str], found: WrittenDeadLetters) -> WrittenDeadLetters:
    """Return the result without the unavailable partitions, which may contain the missing dead letters."""
    return replace(found, missing=frozenset(), unavailable=unavailable) if unavailable else found


async def _write(
    dead_letters: Iterable[PartitionDeadLetters],
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


async def replay(
    backends: Backends,
    selection: Selection,
    *,
    newest: Mapping[str, str] | None = None,
    on_progress: Callable[[Change], None] = _ignore,
    on_wait: Callable[[str], None] = _ignore,
) -> Change:
    """Put matching dead letters back into the queue, up to `newest`. See `DeadLetters.change`."""
    async with control_client(backends.redis_url) as client:
        layout = layout_reader(client, backends.stream)
        dead_letters = DeadLetters(client, layout, group=backends.group, on_wait=on_wait)
        return await dead_letters.change(JobKind.REPLAY, selection, newest=newest, on_progress=on_progress)
