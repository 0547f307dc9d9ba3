"""The maintenance of the partitions that this process leads. Several processes may do it concurrently."""

from collections.abc import Callable, Coroutine
from typing import Any

from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import Sweep
from ingest.queue.consume.maintenance import QueueMaintenance
from ingest.queue.consume.partitioned.partition_set import Partition, PartitionSet
from ingest.queue.consume.partitioned.together import divide, together


class PartitionedMaintenance:
    """Implements `ingest.flow.ports.Maintenance`."""

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions
        # Partitions whose sweep is not complete.
        self._sweeping: list[Partition] = []

    async def sweep(self, idle: float) -> Sweep:
        """Examine one page of each partition whose sweep is not complete. See `QueueMaintenance.sweep`."""
        leading = self._leading()
        sweeping = [partition for partition in self._sweeping if partition in leading] or leading
        pages = await together(partition.consumer.maintenance.sweep(idle) for partition in sweeping)
        self._sweeping = [partition for partition, page in zip(sweeping, pages, strict=True) if not page.is_complete]
        released, restored = sum(page.released for page in pages), sum(page.restored for page in pages)
        return Sweep(not self._sweeping, released, restored)

    async def move_due(self, most: int) -> int:
        """Move up to `most` due entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares(most, lambda maintenance, share: maintenance.move_due(share))

    async def trim(self, most: int) -> int:
        """Delete up to `most` finished entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares(most, lambda maintenance, share: maintenance.trim(share))

    async def remove_stale(self, idle: float) -> int:
        """See `QueueMaintenance.remove_stale`."""
        return sum(await together(each.consumer.maintenance.remove_stale(idle) for each in self._leading()))

    async def settle_not_found(self, stored: StoredSince) -> int:
        """See `QueueMaintenance.settle_not_found`."""
        return sum(await together(each.consumer.maintenance.settle_not_found(stored) for each in self._leading()))

    async def _in_shares(self, most: int, part: Callable[[QueueMaintenance, int], Coroutine[Any, Any, int]]) -> int:
        leading = self._leading()
        if not leading:
            return 0
        shares = divide(most, leading)
        done = await together(part(partition.consumer.maintenance, share) for partition, share in shares)
        if any(count >= share for (_, share), count in zip(shares, done, strict=True)):
            return most
        return sum(done)

    def _leading(self) -> list[Partition]:
        return [partition for partition in self._partitions.rotated() if partition.leads]
