"""The held and settled deliveries of a process without a worker."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from consumers import Consumer
from fakes.workers import buffer_limit

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Store
from ingest.domain.orders.order import Order, decode_order
from ingest.flow.clock import SharedClock, steady
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.settle.settlement import Settlement
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

SPACE = 10_000_000


class Holder:
    """A process that reads, holds and settles on request of the test.

    Args:
        consumer: its consumer.
        lifetime: of its heartbeats, in seconds.
        clock: seconds.
        rows: most documents between fetch and commit.
    """

    def __init__(
        self, consumer: Consumer, *, lifetime: float = 60.0, clock: Callable[[], float] = steady, rows: int = 10
    ) -> None:
        self.consumer = consumer
        self.in_flight = Held(clock=clock)
        self.heartbeats = Heartbeats(consumer, self.in_flight, 3600.0, lifetime, SharedClock(), clock=clock)
        self.buffer = buffer_limit(rows, SPACE)

    async def read(self, count: int = 1) -> list[Delivery]:
        """Read and hold entries, each of which already has an outcome."""
        deliveries = await self.consumer.read(count, 1.0)
        assert len(deliveries) == count
        for delivery in deliveries:
            task = asyncio.create_task(asyncio.sleep(0))
            self.in_flight.add(delivery, task)
            await task
            self.in_flight.mark_decided(delivery)
        return deliveries

    async def store(self, deliveries: list[Delivery], bodies: dict[str, bytes], store: OrderStore) -> None:
        """Store orders as one batch, with the settlement of a worker."""
        orders = [decode_order(bodies[delivery.order_id or ""], delivery.order_id or "") for delivery in deliveries]
        await self.store_orders(deliveries, orders, store)

    async def store_orders(self, deliveries: list[Delivery], orders: list[Order], store: OrderStore) -> None:
        settlement = Settlement(self.consumer, store, self.in_flight, self.heartbeats, _metrics(), self.buffer)
        for delivery, order in zip(deliveries, orders, strict=True):
            await self.buffer.acquire(1)
            settlement.store(delivery, Store((order,), datetime.now(UTC), 1))
        settlement.finish()
        await settlement.run()


def _metrics() -> WorkerMetrics:
    return WorkerMetrics.on(worker_shared_metrics(1), 0)
