"""Groups dead letters and retries by source, reason and error shape. Changes nothing.

Functions raise `QueueUnavailable` when Redis cannot be used right now.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.domain.deliveries.dead_letter import DeadLetterEntry, Selection
from ingest.domain.deliveries.error_shape import error_shape
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.orders.order_state import RetryEntry
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.dead_letter_json import json_time
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.repeated_calls import refuse_to_wait
from ingest.queue.operate.retries import Retries
from ingest.queue.redis.connection import control_client

OnProgress = Callable[[int, int], None]
"""Called with the number of examined entries and the total."""

_EXAMPLES = 3
# Errors that contain words from documents may have any number of shapes. Further ones of a source count as one group.
_MOST_SHAPES = 1000
OTHER_SHAPES = "…"
"""The shape of a group of errors with many different shapes."""


class EntryGroup(msgspec.Struct, frozen=True):
    """Entries of one source with the same reason and error shape.

    Attributes:
        shape: the error with placeholders for values. See `error_shape`.
        newest, oldest: when dead letters were dead-lettered, or retries were first enqueued. None if unknown.
        error: of one of them.
        order_ids: of a few of them.
    """

    source: str
    reason: str
    shape: str
    count: int
    newest: datetime | None
    oldest: datetime | None
    error: str
    order_ids: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the group for JSON."""
        return {
            "source": self.source,
            "reason": self.reason,
            "shape": self.shape,
            "count": self.count,
            "newest": json_time(self.newest),
            "oldest": json_time(self.oldest),
            "error": self.error,
            "order_ids": list(self.order_ids),
        }


class GroupedEntries(msgspec.Struct, frozen=True):
    """The groups of dead letters or retries, the largest first.

    Attributes:
        examined: entries that were read.
        total: entries that there are. More than `examined` while the survey continues.
        age: seconds since the groups were complete, if there is a problem.
        problem: why newer groups cannot be read, or empty.
        missing: partitions whose entries are not counted, because they cannot be read.
    """

    groups: Sequence[EntryGroup]
    examined: int
    total: int
    age: float = 0.0
    problem: str = ""
    missing: Sequence[PartitionTrouble] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all entries were examined."""
        return self.examined >= self.total

    def as_dict(self) -> dict[str, Any]:
        """Return the groups for JSON."""
        return {
            "groups": [group.as_dict() for group in self.groups],
            "examined": self.examined,
            "total": self.total,
            "age": round(self.age, 1),
            "problem": self.problem,
            "missing_partitions": [each.as_dict() for each in self.missing],
        }


@dataclass(slots=True)
class _Counted:
    count: int
    newest: datetime | None
    oldest: datetime | None
    error: str
    order_ids: list[str]

    def add(self, order_id: str | None, at: datetime | None) -> None:
        self.count += 1
        if at is not None:
            self.newest = at if self.newest is None else max(self.newest, at)
            self.oldest = at if self.oldest is None else min(self.oldest, at)
        if order_id and len(self.order_ids) < _EXAMPLES:
            self.order_ids.append(order_id)


@dataclass(slots=True)
class GroupCounts:
    """Counts entries of one source by reason and shape.

    Attributes:
        examined: entries that were added, including those that do not match.
    """

    source: str
    examined: int = 0
    _groups: dict[tuple[str, str], _Counted] = field(default_factory=dict)

    def add(self, entries: Iterable[DeadLetterEntry | RetryEntry], examined: int) -> None:
        """Count entries that match, of some that were examined."""
        self.examined += examined
        for entry in entries:
            at = entry.dead_at if isinstance(entry, DeadLetterEntry) else entry.announced_at
            key = (entry.reason, error_shape(entry.error))
            if key not in self._groups:
                if len(self._groups) >= _MOST_SHAPES:
                    key = (entry.reason, OTHER_SHAPES)
                self._groups.setdefault(key, _Counted(0, None, None, entry.error, []))
            self._groups[key].add(entry.order_id, at)

    def groups(self) -> list[EntryGroup]:
        """Return the groups so far, in no order."""
        return [
            EntryGroup(self.source, reason, shape, each.count, each.newest, each.oldest, each.error, [*each.order_ids])
            for (reason, shape), each in self._groups.items()
        ]


def merged(counts: Iterable[GroupCounts], examined: int, total: int) -> GroupedEntries:
    """Return the groups of several counts. Partitions of a source are added up."""
    found: dict[tuple[str, str, str], EntryGroup] = {}
    for group in (group for each in counts for group in each.groups()):
        key = (group.source, group.reason, group.shape)
        found[key] = group if key not in found else _sum(found[key], group)
    return GroupedEntries(sorted(found.values(), key=_largest_first), examined, total)


def _sum(one: EntryGroup, other: EntryGroup) -> EntryGroup:
    return EntryGroup(
        one.source,
        one.reason,
        one.shape,
        one.count + other.count,
        max(filter(None, (one.newest, other.newest)), default=None),
        min(filter(None, (one.oldest, other.oldest)), default=None),
        one.error,
        [*one.order_ids, *other.order_ids][:_EXAMPLES],
    )


def _largest_first(group: EntryGroup) -> tuple[int, str, str, str]:
    return -group.count, group.source, group.reason, group.shape


async def group_dead_letters(
    sources: Sequence[Backends], selection: Selection, *, on_progress: OnProgress = lambda _examined, _total: None
) -> GroupedEntries:
    """Read all dead letters of these sources, and group those that match."""
    async with control_client(sources[0].redis_url) as client:
        parts = [
            (each.source, part) for each in sources for part in (await _dead_letters(client, each).by_queue()).values()
        ]
        total, counts = sum([await part.count() for _, part in parts]), list[GroupCounts]()
        for source, part in parts:
            counts.append(GroupCounts(source))
            async for page in part.oldest_summaries(selection, newest=await part.newest()):
                counts[-1].add(page.entries, page.examined)
                on_progress(sum(each.examined for each in counts), total)
    examined = sum(each.examined for each in counts)
    return merged(counts, examined, examined)


def _dead_letters(client: Redis, servers: Backends) -> DeadLetters:
    layout = layout_reader(client, servers.stream)
    return DeadLetters(client, layout, group=servers.group, on_wait=refuse_to_wait)


async def group_retries(
    sources: Sequence[Backends], selection: RetrySelection, *, on_progress: OnProgress = lambda _examined, _total: None
) -> GroupedEntries:
    """Read all retries of these sources, and group those that match."""
    async with control_client(sources[0].redis_url) as client:
        parts = [
            (each.source, part)
            for each in sources
            for part in (await Retries(client, layout_reader(client, each.stream), each.group).by_queue()).values()
        ]
        total, counts = sum([await part.count() for _, part in parts]), list[GroupCounts]()
        for source, part in parts:
            counts.append(GroupCounts(source))
            async for page in part.pages(selection.filter.unlisted_fields):
                counts[-1].add([entry for entry in page.entries if selection.matches(entry)], len(page.entries))
                on_progress(sum(each.examined for each in counts), total)
    examined = sum(each.examined for each in counts)
    return merged(counts, examined, examined)
