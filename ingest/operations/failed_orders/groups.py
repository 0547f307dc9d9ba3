"""The groups of dead letters or retries by source, reason and error shape."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from ingest.domain.deliveries.error_shape import error_shape
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import FailedEntry
from ingest.operations.failed_orders.entry_json import GroupList, MissingPartition, ShownGroup
from ingest.operations.json_types import response_of

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


def shown_groups(found: GroupedEntries) -> GroupList:
    """Return the form of groups in responses."""
    missing = [response_of(MissingPartition, each) for each in found.missing]
    groups = [response_of(ShownGroup, each) for each in found.groups]
    return response_of(GroupList, found, groups=groups, age=round(found.age, 1), missing_partitions=missing)


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

    def add(self, entries: Iterable[FailedEntry], examined: int) -> None:
        """Count entries that match, of some that were examined."""
        self.examined += examined
        for entry in entries:
            key = (entry.reason, error_shape(entry.error))
            if key not in self._groups:
                if len(self._groups) >= _MOST_SHAPES:
                    key = (entry.reason, OTHER_SHAPES)
                self._groups.setdefault(key, _Counted(0, None, None, entry.error, []))
            self._groups[key].add(entry.order_id, entry.at)

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
