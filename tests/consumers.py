"""A consumer whose ports are one object, like the in-memory queue, so that tests can call and override its methods."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import Abandoned, DeadReason, Delivery, EntryRef, Heartbeat, RetryReason, Sweep
from ingest.domain.deliveries.result import Finished
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.queue.consume.consumer import open_partition
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.partition import Partition
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.quota import FleetQuotaClient
from ingest.queue.consume.reading import PartitionReading
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import client_for
from ingest.queue.redis.routed_connection import QueueConnection

# Seconds from a failure until commands succeed again.
RESUMED_WITHIN = 15
BEFORE = [f"before-{number}" for number in range(20)]


class Consumer(Partition):
    """A partition that is all of its ports.

    Attributes:
        parts: the real ones.
    """

    def __init__(self, queue: str, access: GroupAccess, results_age: float = 0.0) -> None:
        super().__init__(queue, access, self, self, self, self)
        self.parts = open_partition(queue, access, results_age)
        # Releases and acks by the methods that a test may override.
        self._reading = PartitionReading(access, self)
        self.streams, self.received = self._reading.streams, self._reading.received
        self.name = access.name
        self.keeps_results = self.parts.settling.keeps_results

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
        """A consumer on connections that others share. Reads use the connection `reading`, or their own if it is None."""
        async with AsyncExitStack() as stack:
            if reading is None:
                reading = await stack.enter_async_context(connections.reading(block))
            access = await stack.enter_async_context(connections.access(queue, group, name, reading))
            yield cls(queue, access, results_age)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, queue: str, group: str, name: str, block: float, results_age: float = 0.0
    ) -> AsyncIterator[Self]:
        """A consumer with connections that no other shares."""
        async with (
            QueueConnections.open(url) as connections,
            cls.sharing(connections, queue, group, name, block, results_age) as consumer,
        ):
            yield consumer

    @property
    def express_has_more(self) -> bool:
        return self._reading.express_has_more

    @express_has_more.setter
    def express_has_more(self, has_more: bool) -> None:
        self._reading.express_has_more = has_more

    async def ensure_group(self) -> bool:
        return await self.access.ensure_group()

    async def read(self, count: int, block: float) -> list[Delivery]:
        return await self._reading.read(count, block)

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        return await self._reading.claim_own(count, known, counted=counted)

    async def claim_abandoned(self, count: int) -> Abandoned:
        return await self._reading.claim_abandoned(count)

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        return await self.parts.settling.ack(entries)

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        return await self.parts.settling.ack_with_results(finished)

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        return await self.parts.settling.reschedule(delivery, after, attempt, reason, error)

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        return await self.parts.settling.dead_letter(delivery, reason, error)

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        return await self.parts.settling.release(deliveries)

    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        return await self.parts.liveness.heartbeat(lifetime, clock, report)

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        return await self.parts.liveness.renew(entries)

    async def leave(self) -> int:
        return await self.parts.liveness.leave()

    async def sweep(self, idle: float) -> Sweep:
        return await self.parts.maintenance.sweep(idle)

    async def move_due(self, most: int) -> int:
        return await self.parts.maintenance.move_due(most)

    async def trim(self, most: int) -> int:
        return await self.parts.maintenance.trim(most)

    async def remove_stale(self, idle: float) -> int:
        return await self.parts.maintenance.remove_stale(idle)

    async def settle_not_found(self, stored: StoredSince) -> int:
        return await self.parts.maintenance.settle_not_found(stored)


async def server_stats(redis: Redis, keys: Keys, section: str) -> dict[str, Any]:
    """A section of `INFO` of the server with the queue, which is one of several in a cluster."""
    return dict(await (await client_for(redis, keys.stream)).info(section))


async def read_all(consumer: Consumer, count: int) -> set[str]:
    """Read and ack until there were so many different orders, and wait while Redis is unavailable."""
    seen: set[str] = set()
    held = []
    while len(seen) < count:
        try:
            found = await consumer.read(10, 0.2) or await consumer.claim_own(10, [])
            held += [delivery.entry for delivery in found]
            seen |= {delivery.order_id or "" for delivery in found}
            await consumer.ack(held)
            held = []
        except QueueUnavailable:
            await asyncio.sleep(0.1)
    return seen


@asynccontextmanager
async def open_quota(url: str, name: str, limits: QuotaLimits) -> AsyncIterator[FleetQuotaClient]:
    """A client of a quota, with connections that no other client shares."""
    async with QueueConnections.open(url) as connections:
        yield FleetQuotaClient.on(connections, name, limits)


@asynccontextmanager
async def resuming(url: str, replicate: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Fail a primary in the block. Some entries are replicated and pending. Producers and consumers resume without a loss."""
    async with (
        Consumer.open(url, "orders", "ingest", "one", 1.0) as consumer,
        Producer.connect(url, "orders") as producer,
    ):
        await consumer.ensure_group()
        await producer.enqueue(BEFORE)
        await consumer.read(5, 1.0)  # pending
        await replicate()

        yield
        async with asyncio.timeout(RESUMED_WITHIN):
            await producer.enqueue(["after"])
            seen = await read_all(consumer, len(BEFORE) + 1)

    assert seen == {"after", *BEFORE}
