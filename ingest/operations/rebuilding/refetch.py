"""Fetches orders again and stores them regardless of their version, to repair wrong versions or what a wrong mapping has stored."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Self

import msgspec

from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.domain.orders.order_history import HistoryEvent
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.declared import REFETCH
from ingest.operations.state.worker_versions import require_same_version
from ingest.operations.stored_orders.order_list import id_pages
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.store.orders.history import HistoryStore
from ingest.store.orders.order_reading import OrderReader
from ingest.store.orders.versions import reset_versions

# A statement that lists orders of a large table without an index may take minutes.
_PATIENT = 600.0


async def refetch(backends: Backends, order_ids: Sequence[str], actor: str) -> int:
    """Reset the versions of stored orders, and enqueue all orders in the express lane. Returns how many are stored.

    If the process dies between the two steps, the next document of each order is stored, regardless of its version.

    Raises:
        WorkersDiffer: see `Refetching.open`.
        StoreUnavailable: no change was made, or the response of PostgreSQL was lost.
        QueueUnavailable: the versions are reset, but the orders may not be queued. Call again.
    """
    async with Refetching.open(backends, actor) as refetching:
        async with audited(refetching.audit_log, actor, REFETCH, {"ids": sorted(order_ids)}) as operation:
            stored = await refetching.reset(order_ids)
            await refetching.enqueue(order_ids, express=True)
            operation.count = len(order_ids)
        return stored


def ending_now(selection: OrderFilter) -> OrderFilter:
    """Return a filter by time with an end, because a changed order moves to the end of the list and would be changed again."""
    if selection.is_by_time and selection.stored_to is None:
        return msgspec.structs.replace(selection, stored_to=datetime.now(UTC))
    return selection


class Refetching:
    """Enqueues stored orders again, for one operation.

    Attributes:
        audit_log: of the source.
    """

    def __init__(self, backends: Backends, actor: str, pool: Pool, producer: Producer) -> None:
        self._backends = backends
        self._actor = actor
        self._pool = pool
        self._producer = producer
        self.audit_log = AuditLog(pool, backends.source)

    @classmethod
    @asynccontextmanager
    async def open(cls, backends: Backends, actor: str) -> AsyncIterator[Self]:
        """Open with its own connections.

        Raises:
            WorkersDiffer: workers would store the orders by another version of a mapping, for example.
        """
        await require_same_version(backends)
        async with (
            Pool.open(backends.postgres_dsn, size=1, timeout=_PATIENT) as pool,
            control_client(backends.redis_url) as client,
        ):
            yield cls(backends, actor, pool, Producer(client, backends.stream, partitions=backends.partitions))

    def pages(
        self, selection: OrderFilter, after: OrderPosition | None, limit: int
    ) -> AsyncGenerator[list[OrderPosition], None]:
        """List all orders of a filter after a position, which are not yet enqueued."""
        return id_pages(OrderReader(self._pool, self._backends.source), selection, after, limit)

    async def reset(self, order_ids: Sequence[str]) -> int:
        """Reset the versions of orders, before they are enqueued. Returns how many are stored."""
        return await reset_versions(self._pool, order_ids, self._backends.source)

    async def enqueue(self, order_ids: Sequence[str], *, express: bool) -> None:
        """Enqueue orders whose versions are reset."""
        await self._producer.enqueue(order_ids, express=express)
        if self._backends.keeps_history:
            await HistoryStore(self._pool, self._backends.source).add_operation(
                order_ids, HistoryEvent.REFETCHED, self._actor
            )
