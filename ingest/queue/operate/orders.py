"""Finds, erases and lists the orders of a queue over all its partitions."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.partition.erasing import PartitionEraser, Removed
from ingest.queue.operate.partition.order_search import PartitionSearch, Searched
from ingest.queue.operate.partition.scanner import Page, PartitionScanner
from ingest.queue.operate.queue_parts import QueueParts, ReadLayout

if TYPE_CHECKING:
    from ingest.domain.orders.order_state import QueueEntry


class OrderSearch:
    """Searches the partitions that may contain an order."""

    def __init__(self, client: Redis, layout: ReadLayout, group: str = DEFAULT_GROUP) -> None:
        self._parts = QueueParts(layout, lambda queue, suffix: PartitionSearch(client, queue, group, id_suffix=suffix))

    async def sizes(self, order_ids: Collection[str]) -> list[int]:
        """How many entries each part of these partitions has. See `PartitionSearch.sizes`."""
        return [size for part, _ in await self._parts.of_orders(order_ids) for size in await part.sizes()]

    async def find(
        self,
        order_ids: Collection[str],
        *,
        limit: int = 0,
        most: int = 0,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Searched:
        """Find orders, at most `MOST_ORDERS` of them. See `PartitionSearch.find`."""
        entries: dict[str, list[QueueEntry]] = {}
        is_complete, examined = True, 0
        for part, some in await self._parts.of_orders(order_ids):
            last = 0

            def note(count: int, before: int = examined) -> None:
                nonlocal last
                last = count
                on_progress(before + count)

            found = await part.find(some, limit=limit, most=most, on_progress=note)
            for order_id, each in found.entries.items():
                entries.setdefault(order_id, []).extend(each)
            is_complete = is_complete and found.is_complete
            examined += last
        return Searched(entries, is_complete)


class QueueEraser:
    """Erases orders from all partitions that may contain them. See `PartitionEraser`."""

    def __init__(self, client: Redis, layout: ReadLayout, group: str) -> None:
        self._parts = QueueParts(layout, lambda queue, _: PartitionEraser(client, queue, group))

    async def erase(self, order_ids: Collection[str]) -> dict[str, Removed]:
        """Mark orders as erased, remove their retries and dead letters, and return how many each order had.

        Former partitions come first, because dead letters move from there into the current ones.
        """
        retries, dead_letters = Counter[str](), Counter[str]()
        for part, some in await self._parts.of_orders(order_ids):
            for order_id, removed in (await part.erase(some)).items():
                retries[order_id] += removed.retries
                dead_letters[order_id] += removed.dead_letters
        return {order_id: Removed(retries[order_id], dead_letters[order_id]) for order_id in order_ids}


class QueueScanner:
    """One scan of all partitions, in the direction in which entries move. See `PartitionScanner`."""

    def __init__(self, client: Redis, layout: ReadLayout, group: str) -> None:
        self._parts: QueueParts[Callable[[], PartitionScanner]] = QueueParts(
            layout, lambda queue, _: lambda: PartitionScanner(client, queue, group)
        )

    async def queued(self) -> AsyncIterator[Page]:
        """Every entry of the lanes and of the retry sets. An entry that moves may come twice."""
        for scanner in (await self._parts.oldest_first()).values():
            async for page in scanner().queued():
                yield page

    async def dead(self) -> AsyncIterator[Page]:
        """All dead letters."""
        for scanner in (await self._parts.oldest_first()).values():
            async for page in scanner().dead():
                yield page
