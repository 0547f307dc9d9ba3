"""The parts of an operation, one for each partition of a queue."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from redis.asyncio import Redis

from ingest.domain.partitions import Layout
from ingest.queue.partitions.layout_record import read_layouts

ReadLayout = Callable[[], Awaitable[Layout]]
"""Returns the current partitions of a queue. Raises `QueueUnavailable` when Redis cannot be used right now."""

_Part = TypeVar("_Part")


class QueueParts(Generic[_Part]):
    """Makes the part of each partition when it is first needed.

    Args:
        layout: of the queue.
        make: makes a part from the name of its partition's queue and the suffix of the IDs of its entries. The suffix
            distinguishes entries with equal IDs in several partitions, and is empty in a queue with the plain name.
    """

    def __init__(self, layout: ReadLayout, make: Callable[[str, str], _Part]) -> None:
        self._layout = layout
        self._make = make
        self._parts: dict[str, _Part] = {}

    async def oldest_first(self) -> Mapping[str, _Part]:
        """Return all parts by the name of their queue. Those of former partitions come first, because entries leave them."""
        layout = await self._layout()
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


def layout_reader(client: Redis, queue: str) -> ReadLayout:
    """Read the partitions of a queue at each call, and change nothing."""

    async def read() -> Layout:
        # Until a producer or worker has recorded their number, no partition contains an entry.
        return (await read_layouts(client, {queue: 1}))[queue]

    return read
