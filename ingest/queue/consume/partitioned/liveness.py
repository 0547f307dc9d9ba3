"""How a process shows that it is alive in all partitions of a queue, keeps its deliveries, and leaves."""

from collections.abc import Sequence

from ingest.domain.deliveries.delivery import EntryRef, Heartbeat
from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.partitioned.partition_set import PartitionSet
from ingest.queue.consume.partitioned.together import together


class PartitionedLiveness:
    """Implements `ingest.flow.ports.Liveness`.

    A call fails if it fails in one partition. When it is repeated, it leaves out the partitions whose nodes are known to be unavailable, so
    that the heartbeats of the others continue.
    """

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions

    async def heartbeat(self, lifetime: float, clock: tuple[float, float] | None = None) -> Heartbeat:
        """Report in each partition that this consumer is alive. The time is the time of the first one, for all processes."""
        partitions = self._partitions.available
        heartbeats = await together(
            self._partitions.attempt(partition, partition.consumer.liveness.heartbeat, lifetime, clock)
            for partition in partitions
        )
        has_been_silent, self._partitions.has_been_silent = self._partitions.has_been_silent, False
        for partition, heartbeat in zip(partitions, heartbeats, strict=True):
            partition.leads = heartbeat.leads
        self._partitions.consumers = max(1, *(each.consumers for each in heartbeats))
        if self._partitions.only is not None and heartbeats[0].generation != self._partitions.generation:
            # The recorded generation may even be an earlier one, because a failover may have lost the record, which is then written again.
            self._partitions.changed.set()
        return Heartbeat(
            heartbeats[0].now,
            is_first=has_been_silent or any(each.is_first for each in heartbeats),
            leads=any(each.leads for each in heartbeats),
            consumers=self._partitions.consumers,
        )

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """See `QueueLiveness.renew`. Entries of partitions that are unavailable count as held."""
        divided = self._partitions.divided(entries, lambda entry: entry.stream)
        return set().union(*await together(consumer.liveness.renew(own) for consumer, own in divided))

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Report an outage in each partition, or (None) its end."""
        await together(each.consumer.liveness.report_outage(outage, lifetime) for each in self._partitions.available)

    async def leave(self) -> int:
        """Leave the group of each partition, and return how many entries this consumer has not released."""
        return sum(await together(each.consumer.liveness.leave() for each in self._partitions.available))
