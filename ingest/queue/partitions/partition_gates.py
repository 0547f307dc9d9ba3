"""Opens the queues of partitions to producers, and closes them.

A closed queue accepts no further entries. Its producers read the record of the partitions again, and enqueue in the partitions there. Workers
read it like before. Each call may be repeated.
"""

from collections.abc import Sequence

from redis.asyncio import Redis

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import translated
from ingest.queue.redis.scripts import load


class PartitionGates:
    """The gates of all partitions. Its methods raise `QueueUnavailable` when Redis cannot be used right now."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._open = load(client, "open_partition")
        self._close = load(client, "close_partition")

    async def open_for(self, layout: Layout) -> None:
        """Open the partitions of a layout that is not recorded yet. Before, producers must not be sent there."""
        latest = max([await self._latest_document(queue) for queue in layout.queues])
        await self._open_all(layout.current, latest)

    async def settle(self, layout: Layout) -> None:
        """Close the former partitions of a recorded layout, and reject producers that have divided their orders by another number."""
        former = [queue for queue in layout.queues if queue not in layout.current]
        latest = 0
        for queue in former:
            keys = Keys.of(queue)
            with translated():
                latest = max(latest, int(await self._close([keys.clock, keys.pushed], [layout.generation])))
        await self._open_all(layout.current, latest, layout.generation, layout.partitions)

    async def _latest_document(self, queue: str) -> int:
        with translated():
            return int(await self._client.get(Keys.of(queue).pushed) or 0)

    async def _open_all(self, queues: Sequence[str], latest: int, *recorded: int) -> None:
        for queue in queues:
            keys = Keys.of(queue)
            with translated():
                await self._open([keys.clock, keys.pushed], [latest, *recorded])
