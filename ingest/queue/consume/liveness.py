"""How a process shows that it is alive in all partitions of a queue, keeps its deliveries, and leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.delivery import EntryRef, Heartbeat
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.partition.partition import Partition
from ingest.queue.consume.partition_set import PartitionSet

# Seconds for which a call waits for slow servers while others have responded.
_WAIT = 1.0


class QueueLiveness:
    """Implements `ingest.flow.ports.Liveness`.

    A call fails if it fails in all partitions. Those of a slow server continue while the calls to others are made again.

    Args:
        partitions: the partitions that are read.
        release_unread: releases entries that were read and not returned.
    """

    def __init__(self, partitions: PartitionSet, release_unread: Callable[[], Awaitable[None]]) -> None:
        self._partitions = partitions
        self._release_unread = release_unread

    async def heartbeat(self, lifetime: float, clock: ClockBounds = unknown_time) -> Heartbeat:
        """Report in each partition that this consumer is alive. The time is the time of the first one, for all processes."""
        partitions, now = self._partitions, asyncio.get_running_loop().time
        began_at = now()

        async def send(partition: Partition) -> tuple[float, Heartbeat]:
            sent_at = now()
            heartbeat = await partition.consumer.liveness.heartbeat(lifetime, clock)
            partition.leads = heartbeat.leads
            return sent_at, heartbeat

        heartbeats: list[Heartbeat] = []
        is_first = False
        while not heartbeats:  # each server is late
            found = await partitions.each("heartbeat", partitions.ready("heartbeat"), send, min(_WAIT, lifetime / 6))
            is_first |= any(heartbeat.is_first for _, heartbeat in found.values())
            # The time in the reply to an earlier heartbeat is out of date.
            heartbeats = [heartbeat for sent_at, heartbeat in found.values() if sent_at >= began_at]
        partitions.consumers = max(1, *(each.consumers for each in heartbeats))
        if partitions.only is not None and heartbeats[0].generation != partitions.generation:
            # The recorded generation may even be an earlier one, because a failover may have lost the record, which is then written again.
            partitions.changed.set()
        return Heartbeat(
            heartbeats[0].now,
            is_first=is_first,
            leads=any(each.leads for each in partitions.all),
            consumers=partitions.consumers,
        )

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """See `PartitionLiveness.renew`. Entries of partitions that are unavailable or slow count as held."""
        lost = await self._partitions.send(
            "renew", entries, lambda each: each.stream, lambda to, own: to.liveness.renew(own), _WAIT
        )
        return set().union(*lost)

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Report an outage in each partition, or (None) its end."""
        await self._partitions.each(
            "report",
            self._partitions.ready("report"),
            lambda each: each.consumer.liveness.report_outage(outage, lifetime),
            _WAIT,
        )

    async def report_troubles(self, troubles: Sequence[PartitionTrouble], lifetime: float) -> None:
        """Report for `lifetime` seconds, in each partition, the troubles of some of them."""
        await self._partitions.each(
            "troubles",
            self._partitions.ready("troubles"),
            lambda each: each.consumer.liveness.report_troubles(troubles, lifetime),
            _WAIT,
        )

    async def leave(self) -> int:
        """Leave the group of each partition, and return how many entries this consumer has not released."""
        await self._release_unread()
        left = await self._partitions.each(
            "leave", self._partitions.ready("leave"), lambda each: each.consumer.liveness.leave(), _WAIT
        )
        return sum(left.values())
