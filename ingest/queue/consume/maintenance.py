"""The maintenance of the partitions that this process leads. Several processes may do it concurrently."""

from collections.abc import Callable, Coroutine
from typing import Any

from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import Sweep
from ingest.queue.consume.partition.maintenance import PartitionMaintenance
from ingest.queue.consume.partition.partition import Kind, Partition
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.shares import divide

# Seconds for which a step waits for slow servers while others have responded.
_WAIT = 1.0


class QueueMaintenance:
    """Implements `ingest.flow.ports.Maintenance`."""

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions
        # Partitions whose sweep is not complete.
        self._sweeping: list[Partition] = []

    async def sweep(self, idle: float) -> Sweep:
        """Examine one page of each partition whose sweep is not complete. See `PartitionMaintenance.sweep`."""
        leading = self._leading("sweep")
        sweeping = [partition for partition in self._sweeping if partition in leading] or leading
        pages = await self._partitions.each(
            "sweep", sweeping, lambda each: each.consumer.maintenance.sweep(idle), _WAIT
        )
        self._sweeping = [partition for partition, page in pages.items() if not page.is_complete]
        released = sum(page.released for page in pages.values())
        return Sweep(not self._sweeping, released, sum(page.restored for page in pages.values()))

    async def move_due(self, most: int) -> int:
        """Move up to `most` due entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares("due", most, lambda maintenance, share: maintenance.move_due(share))

    async def trim(self, most: int) -> int:
        """Delete up to `most` finished entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares("trim", most, lambda maintenance, share: maintenance.trim(share))

    async def remove_stale(self, idle: float) -> int:
        """See `PartitionMaintenance.remove_stale`."""
        removed = await self._partitions.each(
            "stale", self._leading("stale"), lambda each: each.consumer.maintenance.remove_stale(idle), _WAIT
        )
        return sum(removed.values())

    async def settle_not_found(self, stored: StoredSince) -> int:
        """See `PartitionMaintenance.settle_not_found`."""
        settled = await self._partitions.each(
            "settle",
            self._leading("settle"),
            lambda each: each.consumer.maintenance.settle_not_found(stored),
            _WAIT,
        )
        return sum(settled.values())

    async def _in_shares(
        self, kind: Kind, most: int, part: Callable[[PartitionMaintenance, int], Coroutine[Any, Any, int]]
    ) -> int:
        shares = dict(divide(most, self._leading(kind)))
        done = await self._partitions.each(
            kind, shares, lambda each: part(each.consumer.maintenance, shares[each]), _WAIT
        )
        if any(count >= shares[partition] for partition, count in done.items()):
            return most
        return sum(done.values())

    def _leading(self, kind: Kind) -> list[Partition]:
        return [partition for partition in self._partitions.rotated(kind) if partition.leads]
