"""The parts of an operation, one for each partition of a queue."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from redis.asyncio import Redis

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.errors import QueueUnavailable
from ingest.domain.partitions import Layout
from ingest.queue.operate.partition_troubles import noticed_trouble
from ingest.queue.partitions.layout_record import read_layouts

ReadLayout = Callable[[], Awaitable[Layout]]
"""Returns the current partitions of a queue. Raises `QueueUnavailable` when Redis cannot be used right now."""

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Reached(Generic[_Part, _Result]):
    """The partitions whose server can be used.

    Attributes:
        found: their parts by queue, each with the result of a call. Those of former partitions come first.
        missing: the others. A queue whose record of partitions cannot be read is among them.
    """

    found: Mapping[str, tuple[_Part, _Result]]
    missing: Sequence[PartitionTrouble]


class Progress:
    """The number of entries that were examined in several parts, one after the other."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self._before = self._last = 0

    def note(self, count: int) -> None:
        """Note how many were examined in this part so far."""
        self._last = count
        self._on_progress(self._before + count)

    def end_part(self) -> None:
        """Add up this part."""
        self._before, self._last = self._before + self._last, 0


class QueueParts(Generic[_Part]):
    """Makes the part of each partition when it is first needed.

    Args:
        layout: of the queue.
        make: makes a part from the name of its partition's queue and the suffix of the IDs of its entries. The suffix
            distinguishes entries with equal IDs in several partitions, and is empty in a queue with the plain name.
        assumed: the partitions that `reached` tries while their record cannot be read and has not been read before. None raises then.
    """

    def __init__(self, layout: ReadLayout, make: Callable[[str, str], _Part], *, assumed: Layout | None = None) -> None:
        self._layout = layout
        self._make = make
        self._known = assumed
        self._parts: dict[str, _Part] = {}

    async def oldest_first(self) -> Mapping[str, _Part]:
        """Return all parts by the name of their queue. Those of former partitions come first, because entries leave them."""
        layout = self._known = await self._layout()
        return self._of(layout)

    async def reached(self, client: Redis, call: Callable[[_Part], Awaitable[_Result]]) -> Reached[_Part, _Result]:
        """Call all parts concurrently, and return the results of those whose server can be used, so that one server costs itself only.

        Raises:
            QueueUnavailable: no server can be used.
        """
        missing, failures = list[PartitionTrouble](), list[QueueUnavailable]()
        try:
            parts = await self.oldest_first()
        except QueueUnavailable as error:
            if self._known is None:
                raise
            unknown = noticed_trouble(client, self._known.queue, error)
            missing.append(replace(unknown, error=f"its partitions are not known: {error}"))
            parts = self._of(self._known)
        results = await asyncio.gather(*map(call, parts.values()), return_exceptions=True)
        found: dict[str, tuple[_Part, _Result]] = {}
        for (queue, part), result in zip(parts.items(), results, strict=True):
            if isinstance(result, QueueUnavailable):
                missing.append(noticed_trouble(client, queue, result))
                failures.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[queue] = part, result
        if not found:
            raise failures[0]
        return Reached(found, missing)

    def share_of(self, most: int) -> int:
        """Return how many of some entries each part contributes."""
        return -(-most // len(self._parts))

    def _of(self, layout: Layout) -> Mapping[str, _Part]:
        self._parts = {queue: self._part(layout, queue) for queue in reversed(layout.queues)}
        return self._parts

    async def of_orders(self, order_ids: Collection[str]) -> Sequence[tuple[_Part, Sequence[str]]]:
        """Return the parts that may contain these orders, each with its orders, in the same order of partitions."""
        layout = await self._layout()
        orders: dict[str, list[str]] = {queue: [] for queue in reversed(layout.queues)}
        for order_id in order_ids:
            for queue in layout.queues_of_order(order_id):
                orders[queue].append(order_id)
        return [(self._part(layout, queue), some) for queue, some in orders.items() if some]

    def _part(self, layout: Layout, queue: str) -> _Part:
        return self._parts.get(queue) or self._make(queue, queue.removeprefix(layout.queue))


class PartitionedEntries(Generic[_Part]):
    """Entries of a queue, by its partitions.

    Args:
        client: connection to Redis.
        parts: the entries of each partition.
    """

    def __init__(self, client: Redis, parts: QueueParts[_Part]) -> None:
        self._client = client
        self._parts = parts

    async def by_queue(self) -> Mapping[str, _Part]:
        """The entries of each partition."""
        return await self._parts.oldest_first()

    async def reached(self, call: Callable[[_Part], Awaitable[_Result]]) -> Reached[_Part, _Result]:
        """Call the entries of each partition whose server can be used. See `QueueParts.reached`."""
        return await self._parts.reached(self._client, call)


def layout_reader(client: Redis, queue: str) -> ReadLayout:
    """Read the partitions of a queue at each call, and change nothing."""

    async def read() -> Layout:
        # Until a producer or worker has recorded their number, no partition contains an entry.
        return (await read_layouts(client, {queue: 1}))[queue]

    return read
