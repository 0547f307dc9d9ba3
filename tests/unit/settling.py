"""What tests of the settlement share: one process on fakes, in virtual time, that holds the deliveries of the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from fakes.group import MemoryGroup
from fakes.queue import MemoryQueue
from fakes.store import MemoryStore
from fakes.upstream import document
from fakes.virtual_time import now
from fakes.workers import buffer_limit, metrics

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.outcome import Outcome, Store
from ingest.domain.orders.order import decode_order
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.settle.settlement import Settlement

ROWS = 100
AT = datetime(2026, 1, 1, tzinfo=UTC)


def order_names(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


class NotingQueue(MemoryQueue):
    """Records the acked deliveries."""

    def __init__(self, group: MemoryGroup, *, keeps_results: bool) -> None:
        super().__init__(group, "one", keeps_results=keeps_results)
        self.acked: list[EntryRef] = []

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        self.acked += entries
        return await super().ack(entries)


class Process:
    """The settlement of one process."""

    def __init__(self, rows: int = ROWS, *, keeps_results: bool = False) -> None:
        self.group = MemoryGroup(now)
        self.queue = NotingQueue(self.group, keeps_results=keeps_results)
        self.store = MemoryStore()
        self.metrics = metrics()
        self.in_flight = Held(clock=now)
        self.heartbeats = Heartbeats(self.queue, self.in_flight, 30.0, 6.0, SharedClock(monotonic=now), clock=now)
        self.buffer = buffer_limit(rows, 10**9)
        self.settlement = Settlement(
            self.queue, self.store, self.in_flight, self.heartbeats, self.metrics, self.buffer, now=now, clock=now
        )

    async def deliver(self, *order_ids: str, seconds: float = 0.0) -> list[Delivery]:
        """Read entries and hold them, as if they were being processed for so long."""
        self.group.add(*order_ids)
        deliveries = await self.queue.read(len(order_ids), 0)
        for delivery in deliveries:
            self.in_flight.add(delivery, asyncio.create_task(asyncio.sleep(seconds)))
        return deliveries

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        self.in_flight.mark_decided(delivery)
        if isinstance(outcome, Store):
            self.settlement.store(delivery, outcome)
        else:
            await self.settlement.move(delivery, outcome)

    async def store_orders(self, delivery: Delivery, *order_ids: str) -> None:
        """Settle a delivery whose document has these orders, as soon as there is buffer space."""
        await self.buffer.acquire(1)
        orders = tuple(decode_order(document(order_id), order_id) for order_id in order_ids)
        await self.settle(delivery, Store(orders, AT, 1))

    async def store_own(self, delivery: Delivery) -> None:
        """Settle a delivery with its order."""
        await self.store_orders(delivery, str(delivery.order_id))

    async def store_each(self, *order_ids: str) -> None:
        """Deliver and settle orders, one in each document."""
        for delivery in await self.deliver(*order_ids):
            await self.store_own(delivery)

    def dead(self) -> set[tuple[str | None, str]]:
        return {(dead.order_id, dead.reason.value) for dead in self.group.dead}

    @property
    def acks(self) -> int:
        return self.group.calls["ack"]


@asynccontextmanager
async def settling(
    rows: int = ROWS, *, keeps_results: bool = False, sends_heartbeats: bool = True
) -> AsyncIterator[Process]:
    process = Process(rows, keeps_results=keeps_results)
    async with asyncio.timeout(3_600):
        await process.heartbeats.send()
        tasks = [asyncio.create_task(process.settlement.run())]
        if sends_heartbeats:
            tasks.append(asyncio.create_task(process.heartbeats.run()))
        yield process
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
