"""A consumer of all partitions of a queue, which follows changes of the partitions while it runs.

A queue with a single partition is read as if there were no partitions, with the same commands. The replies to its heartbeats report a
change. With several partitions, the record of the partitions is read every few seconds.

If the process dies here, its entries stay pending under its name in each partition, as with a single consumer.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Self

from ingest.backoff import call_until_available
from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.domain.partitions import Layout
from ingest.queue.consume.consumer import Consumer
from ingest.queue.consume.partitioned.liveness import PartitionedLiveness
from ingest.queue.consume.partitioned.maintenance import PartitionedMaintenance
from ingest.queue.consume.partitioned.partition_set import Partition, PartitionSet
from ingest.queue.consume.partitioned.reading import PartitionedReading
from ingest.queue.consume.partitioned.settling import PartitionedSettling
from ingest.queue.consume.partitioned.together import together
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.waiting_read import WaitingRead
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.redis.routed_connection import QueueConnection

# Seconds between two readings of the record, while there are several partitions. Processes spread theirs over half of it.
_INTERVAL = 5.0
# Seconds between two attempts to use a partition whose node is unavailable.
_RETRY_EVERY = 0.5

OpenConsumer = Callable[[str, QueueConnection], AbstractAsyncContextManager[Consumer]]
"""Opens a consumer of the queue with that name, with a connection for its reads."""


class PartitionedConsumer:
    """A consumer of one queue by its ports. It implements `ingest.flow.ports.FleetPart`.

    Attributes:
        reading, settling, liveness, maintenance: implement the ports of `ingest.flow.ports`.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        reading: PartitionedReading,
        settling: PartitionedSettling,
        open_consumer: Callable[[str], Awaitable[Consumer]],
        record: LayoutRecord,
        lifetime: float,
    ) -> None:
        self.reading = reading
        self.settling = settling
        self.liveness = PartitionedLiveness(partitions)
        self.maintenance = PartitionedMaintenance(partitions)
        self._partitions = partitions
        self._open_consumer = open_consumer
        self._record = record
        self._lifetime = lifetime
        # By queue, including queues that are not read any more.
        self._opened: dict[str, Partition] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        connections: QueueConnections,
        record: LayoutRecord,
        open_consumer: OpenConsumer,
        group: str,
        name: str,
        block: float,
        lifetime: float,
        *,
        keeps_results: bool = False,
    ) -> AsyncIterator[Self]:
        """Open a consumer of the partitions that are recorded now, and create missing groups.

        Args:
            connections: of the process.
            record: of the partitions.
            open_consumer: opens the consumer of a partition.
            group: the consumer group.
            name: the consumer.
            block: seconds for which a read waits, at most.
            lifetime: of a heartbeat, in seconds.
            keeps_results: whether results are kept.
        """
        async with AsyncExitStack() as stack:
            own = await stack.enter_async_context(connections.reading(block))
            partitions = PartitionSet(connections.have_one_owner)
            settling = PartitionedSettling(partitions, keeps_results=keeps_results)
            waiting = WaitingRead(own, group, name, connections.shared)

            async def opened(queue: str) -> Consumer:
                return await stack.enter_async_context(open_consumer(queue, own))

            reading = PartitionedReading(partitions, waiting, connections.looking, group, name)
            consumer = cls(partitions, reading, settling, opened, record, lifetime)
            layout = await record.read()
            await consumer.follow(layout)
            record.log(layout, is_change=False)
            yield consumer

    async def follow(self, layout: Layout) -> None:
        """Read the queues of a layout from now on, and no others.

        A queue that is not read any more is empty. Entries of it that are held are still settled.
        """
        before, queues = self._partitions.all, layout.queues
        # One after the other, because concurrent calls would open further connections, which stay open.
        for queue in queues:
            if queue not in self._opened:
                self._opened[queue] = Partition(queue, await self._open_consumer(queue))
        partitions = [self._opened[queue] for queue in queues]
        joined = [partition for partition in partitions if partition not in before]
        for partition in joined:
            await partition.consumer.access.ensure_group()
        if before:
            # A consumer reports that it is alive before it reads, so that others reclaim its entries if it dies.
            await together(partition.consumer.liveness.heartbeat(self._lifetime) for partition in joined)
        self._partitions.replace(partitions, layout.generation)

    async def run(self) -> None:
        """Follow changes of the partitions, and use partitions again whose nodes were unavailable, until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._follow_changes())
            parts.create_task(self._restore())

    async def _follow_changes(self) -> None:
        while True:
            await self._until_due()
            await call_until_available(self._refresh, passes=_is_passing, on_failure=lambda _: None)

    def close(self) -> None:
        """Do nothing, because the entries of all partitions still have to be settled."""

    async def _restore(self) -> None:
        partitions = self._partitions
        while True:
            await partitions.any_down.wait()
            await together(self._try(partition) for partition in partitions.all if partition.is_down)
            await asyncio.sleep(random.uniform(0.5, 1.0) * _RETRY_EVERY)  # noqa: S311  spreads processes, and is no secret

    async def _try(self, partition: Partition) -> None:
        try:
            # Heartbeats share commands, so a node that does not respond would delay the heartbeats of other partitions until its timeout.
            await partition.consumer.access.ensure_group()
            await partition.consumer.liveness.heartbeat(self._lifetime)
        except QueueUnavailable:
            return
        self._partitions.restore(partition)

    async def _until_due(self) -> None:
        """Wait until the record may have changed."""
        if self._partitions.only is not None:
            await self._partitions.changed.wait()
            self._partitions.changed.clear()
        else:
            await asyncio.sleep(random.uniform(0.5, 1.0) * _INTERVAL)  # noqa: S311  spreads processes, and is no secret

    async def _refresh(self) -> None:
        layout = await self._record.read()
        before = self._partitions.all
        await self.follow(layout)
        if self._partitions.all != before:
            self._record.log(layout, is_change=True)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, Unavailable)
