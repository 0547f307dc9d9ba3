"""Removes retries and dead letters of erased orders, of all consumer groups.

A mark comes first. From then on, no move makes a retry or a dead letter of such an order. An entry in a lane stays until a worker reads it,
finds the order erased, and finishes the entry. If the process dies here, the remaining entries have the mark, and a repeated call removes
them.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.domain.orders.order_state import DeadEntry, QueueEntry, RetryEntry
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.order_search import PartitionSearch
from ingest.queue.operate.queue_parts import QueueParts, ReadLayout
from ingest.queue.partitions.groups import groups_of
from ingest.queue.redis.connection import client_for, translated
from ingest.queue.redis.scripts import load

_MOST_REMOVED = 200


@dataclass(frozen=True, slots=True)
class Removed:
    """The removed traces of an order."""

    retries: int = 0
    dead_letters: int = 0


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


class PartitionEraser:
    """Erases orders from one queue.

    Methods raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe. Groups that read the queue
    are found. `group` may have retries and dead letters although it does not.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._queue = queue
        self._group = group
        self._remove = load(client, "remove_retries")
        self._drop = load(client, "drop")

    async def erase(self, order_ids: Collection[str]) -> dict[str, Removed]:
        """Mark orders as erased, remove their retries and dead letters, and return how many each order had."""
        await self._mark(order_ids)
        counts: Counter[tuple[str, type]] = Counter()
        for group in await groups_of(self._client, self._queue, self._group):
            search = PartitionSearch(self._client, self._queue, group)
            found = await search.find_retries_and_dead_letters(order_ids)
            await self._remove_all(Keys.of(self._queue, group), [entry for each in found.values() for entry in each])
            counts.update((order_id, type(entry)) for order_id, each in found.items() for entry in each)
        return {order_id: Removed(counts[order_id, RetryEntry], counts[order_id, DeadEntry]) for order_id in order_ids}

    async def _remove_all(self, keys: Keys, entries: Sequence[QueueEntry]) -> None:
        retries = [entry.name for entry in entries if isinstance(entry, RetryEntry)]
        dead_letters = [entry.entry_id for entry in entries if isinstance(entry, DeadEntry)]
        names = [keys.retry, keys.retry_entries, keys.retry_announced, keys.erased]
        with translated():
            for start in range(0, len(retries), _MOST_REMOVED):
                await self._remove(names, retries[start : start + _MOST_REMOVED])
            for start in range(0, len(dead_letters), _MOST_REMOVED):
                await self._drop([keys.dead, keys.dead_seen], dead_letters[start : start + _MOST_REMOVED])

    async def _mark(self, order_ids: Collection[str]) -> None:
        with translated():
            erased = Keys.of(self._queue).erased
            # The server with the queue, whose clock also dates its entries.
            server = await client_for(self._client, erased)
            seconds, micros = await server.time()
            at = seconds * 1000 + micros // 1000
            await self._client.zadd(erased, dict.fromkeys(order_ids, at), nx=True)
