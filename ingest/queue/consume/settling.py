"""The end of deliveries of a queue. Each is settled in the partition that it comes from."""

from collections.abc import Sequence

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.result import Finished
from ingest.queue.consume.partition_set import PartitionSet

# Seconds for which acks wait for a slow server. They continue then, while others are sent.
_WAIT = 0.25


class QueueSettling:
    """Implements `ingest.flow.ports.Settling`.

    While the node of a partition is unavailable, the entries there are neither acked nor released, so that other partitions do not wait. They
    are pending, and are delivered again when the node is available. While a node is slow, the calls for it continue alone, and their
    entries count as acked. If the process dies before they are, they are delivered again and change nothing.

    Args:
        partitions: the partitions that are read.
        keeps_results: whether results are kept.
    """

    def __init__(self, partitions: PartitionSet, *, keeps_results: bool) -> None:
        self._partitions = partitions
        self.keeps_results = keeps_results

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """See `PartitionSettling.ack`."""
        return sum(
            await self._partitions.send(
                "ack", entries, lambda each: each.stream, lambda to, own: to.settling.ack(own), _WAIT
            )
        )

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """See `PartitionSettling.ack_with_results`."""
        return sum(
            await self._partitions.send(
                "results",
                finished,
                lambda each: each.entry.stream,
                lambda to, own: to.settling.ack_with_results(own),
                _WAIT,
            )
        )

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """See `PartitionSettling.reschedule`."""
        consumer = self._partitions.of(delivery.entry.stream)
        return await consumer.settling.reschedule(delivery, after, attempt, reason, error)

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """See `PartitionSettling.dead_letter`."""
        return await self._partitions.of(delivery.entry.stream).settling.dead_letter(delivery, reason, error)

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """See `PartitionSettling.release`."""
        return sum(
            await self._partitions.send(
                "release",
                deliveries,
                lambda each: each.entry.stream,
                lambda to, own: to.settling.release(own),
                _WAIT,
            )
        )
