"""A consumer of all partitions of a queue, which follows changes of the partitions while it runs.

A queue with a single partition is read as if there were no partitions, with the same commands. The replies to its heartbeats report a
change. With several partitions, the record of the partitions is read every few seconds.

If the process dies here, its entries stay pending under its name in each partition, as with a single consumer.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from ingest.backoff import call_until_available
from ingest.domain.deliveries.partition_trouble import TroubleKind
from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.domain.partitions import Layout
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.liveness import PartitionLiveness, QueueLiveness
from ingest.queue.consume.maintenance import PartitionMaintenance, QueueMaintenance
from ingest.queue.consume.partition import Partition
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.reading import PartitionReading, QueueReading
from ingest.queue.consume.server_reads import ServerReads
from ingest.queue.consume.settling import PartitionSettling, QueueSettling
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.redis.server_trouble import trouble_of

# Seconds between two readings of the record, while there are several partitions. Processes spread theirs over half of it.
_INTERVAL = 5.0
# Seconds between two reports of troubles.
_REPORT_EVERY = 4.0

OpenPartition = Callable[[str, GroupAccess, float], Partition]
"""Makes the partition whose queue has that name. Results are kept for some seconds."""


def open_partition(queue: str, access: GroupAccess, results_age: float = 0.0) -> Partition:
    """Return the partition that `access` is for, whose queue has that name. Results are kept for `results_age` seconds."""
    settling = PartitionSettling(access, results_age)
    reading, maintenance = PartitionReading(access, settling), PartitionMaintenance(access)
    return Partition(queue, access, reading, settling, PartitionLiveness(access), maintenance)


class QueueConsumer:
    """A consumer of one queue by its ports. It implements `ingest.flow.ports.FleetPart`.

    Attributes:
        reading, settling, liveness, maintenance: implement the ports of `ingest.flow.ports`.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        reading: QueueReading,
        settling: QueueSettling,
        open_one: Callable[[str], Awaitable[Partition]],
        record: LayoutRecord,
        lifetime: float,
    ) -> None:
        self.reading = reading
        self.settling = settling
        self.liveness = QueueLiveness(partitions, reading.release_unread)
        self.maintenance = QueueMaintenance(partitions)
        self._partitions = partitions
        self._open_one = open_one
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
        group: str,
        name: str,
        block: float,
        lifetime: float,
        results_age: float = 0.0,
        opened: OpenPartition = open_partition,
    ) -> AsyncIterator[Self]:
        """Open a consumer of the partitions that are recorded now, and create missing groups.

        Args:
            connections: of the process.
            record: of the partitions.
            group: the consumer group.
            name: the consumer.
            block: seconds for which a read waits, at most.
            lifetime: of a heartbeat, in seconds.
            results_age: seconds for which results are kept, or 0 for none.
            opened: makes each partition. A test may replace its ports.
        """
        async with AsyncExitStack() as stack:
            own = await stack.enter_async_context(connections.reading(block))
            partitions = PartitionSet(connections.have_one_owner, connections.topology.last_server_of)
            settling = QueueSettling(partitions, keeps_results=results_age > 0)

            async def open_one(queue: str) -> Partition:
                access = await stack.enter_async_context(connections.access(queue, group, name, own))
                return opened(queue, access, results_age)

            stack.push_async_callback(partitions.close)
            reads = ServerReads(partitions, connections.looking, group, name)
            stack.push_async_callback(reads.close)
            reading = QueueReading(partitions, reads)
            consumer = cls(partitions, reading, settling, open_one, record, lifetime)
            layout = await record.read()
            await consumer.follow(layout)
            record.log(layout, is_change=False)
            yield consumer

    async def follow(self, layout: Layout) -> None:
        """Read the queues of a layout from now on, and no others.

        A queue that is not read any more is empty. Entries of it that are held are still settled.
        """
        before = self._partitions.all
        partitions: list[Partition] = []
        unopened: dict[str, QueueUnavailable] = {}
        gone: dict[str, QueueUnavailable] = {}
        # One after the other, because concurrent calls would open further connections, which stay open.
        for queue in layout.queues:
            server = self._partitions.server_of(Keys.of(queue).stream)
            try:
                if server in gone:
                    raise gone[server]
                if (partition := self._opened.get(queue)) is None:
                    partition = self._opened[queue] = await self._open_one(queue)
                if partition not in before:
                    await partition.access.ensure_group()
                    if before:
                        # A consumer reports that it is alive before it reads, so that others reclaim its entries if it dies.
                        await partition.liveness.heartbeat(self._lifetime)
            except QueueUnavailable as error:
                # The others are read, and this one is opened as soon as its server is available.
                unopened[queue] = error
                if trouble_of(error) is TroubleKind.UNAVAILABLE:
                    gone[server] = error  # each attempt may take as long as a command may
            else:
                partitions.append(partition)
        if not partitions:
            raise next(iter(unopened.values()))
        self._partitions.replace(partitions, layout.generation, unopened)

    async def run(self) -> None:
        """Follow changes of the partitions, and report their troubles, until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._keep_following())
            parts.create_task(self._keep_reporting())

    async def _keep_reporting(self) -> None:
        """Report the troubles of partitions in each partition, because the server of any of them may be unavailable."""
        while True:
            await asyncio.sleep(_REPORT_EVERY)
            if troubles := self._partitions.troubles:
                with suppress(QueueUnavailable):
                    await self.liveness.report_troubles(troubles, 3 * _REPORT_EVERY)

    async def _keep_following(self) -> None:
        while True:
            if self._partitions.only is not None:
                await self._partitions.changed.wait()
                self._partitions.changed.clear()
            else:
                await asyncio.sleep(random.uniform(0.5, 1.0) * _INTERVAL)  # noqa: S311  spreads processes, and is no secret
            await call_until_available(
                self._refresh, passes=lambda error: isinstance(error, Unavailable), on_failure=lambda _: None
            )

    def close(self) -> None:
        """Do nothing, because the entries of all partitions still have to be settled."""

    async def _refresh(self) -> None:
        layout = await self._record.read()
        before = self._partitions.all
        await self.follow(layout)
        if self._partitions.all != before:
            self._record.log(layout, is_change=True)
