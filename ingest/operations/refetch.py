"""Fetches orders again and stores them regardless of their version, to repair wrong versions."""

from collections.abc import Sequence

from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.orders.versions import reset_versions
from ingest.store.pool import Pool

REFETCH = "orders.refetch"


async def refetch(backends: Backends, order_ids: Sequence[str], actor: str) -> int:
    """Reset the versions of stored orders, and enqueue all orders in the express lane. Returns how many are stored.

    If the process dies between the two steps, the next document of each order is stored, regardless of its version.

    Raises:
        StoreUnavailable: no change was made, or the response of PostgreSQL was lost.
        QueueUnavailable: the versions are reset, but the orders may not be queued. Call again.
    """
    async with Pool.open(backends.postgres_dsn, size=1) as pool, control_client(backends.redis_url) as client:
        async with audited(AuditLog(pool, backends.source), actor, REFETCH, {"ids": sorted(order_ids)}) as operation:
            stored = await reset_versions(pool, order_ids, backends.source)
            producer = Producer(client, backends.stream, partitions=backends.partitions)
            await producer.enqueue(order_ids, express=True)
            operation.count = len(order_ids)
        return stored
