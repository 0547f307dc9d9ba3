"""One consumer of the group.

If the process dies here, its entries stay pending under its name, until its successor claims them by `claim_own`, or
another consumer by `claim_abandoned` when its heartbeat has expired.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import msgspec

from ingest.queue.consume.partition.group_access import GroupAccess
from ingest.queue.consume.partition.liveness import PartitionLiveness
from ingest.queue.consume.partition.maintenance import PartitionMaintenance
from ingest.queue.consume.partition.reading import PartitionReading
from ingest.queue.consume.partition.settling import PartitionSettling
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.redis.routed_connection import QueueConnection


class PartitionConsumer(msgspec.Struct, frozen=True):
    """A named consumer of one queue's group, by its ports.

    All methods of the ports raise `QueueUnavailable` when Redis cannot be used right now. It is always safe to call them again. A
    group that has vanished is created again from the start of its streams, because a second delivery changes nothing.
    """

    access: GroupAccess
    reading: PartitionReading
    settling: PartitionSettling
    liveness: PartitionLiveness
    maintenance: PartitionMaintenance

    @classmethod
    def on(cls, access: GroupAccess, results_age: float = 0.0) -> Self:
        """The consumer that `access` names. Results are kept for `results_age` seconds."""
        settling = PartitionSettling(access, results_age)
        return cls(
            access,
            PartitionReading(access, settling),
            settling,
            PartitionLiveness(access),
            PartitionMaintenance(access),
        )

    @classmethod
    @asynccontextmanager
    async def sharing(
        cls,
        connections: QueueConnections,
        queue: str,
        group: str,
        name: str,
        block: float,
        results_age: float = 0.0,
        reading: QueueConnection | None = None,
    ) -> AsyncIterator[Self]:
        """A consumer on connections that others share.

        Reads, which block up to `block` seconds, use the connection `reading`. If it is None, they use their own connection.
        """
        async with AsyncExitStack() as stack:
            if reading is None:
                reading = await stack.enter_async_context(connections.reading(block))
            access = await stack.enter_async_context(connections.access(queue, group, name, reading))
            yield cls.on(access, results_age)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, queue: str, group: str, name: str, block: float, results_age: float = 0.0
    ) -> AsyncIterator[Self]:
        """A consumer with connections that no other shares. See `sharing`."""
        async with (
            QueueConnections.open(url) as connections,
            cls.sharing(connections, queue, group, name, block, results_age) as consumer,
        ):
            yield consumer
