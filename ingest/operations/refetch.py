"""Has orders fetched again and stored whatever version they have: the remedy for a version that is wrong."""

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
    """Reset the versions of stored orders, and enqueue all of them in the express lane; returns how many are stored.

    If the process dies between the two, the next document of each order is stored, whenever it comes.

    Raises:
        StoreUnavailable: nothing was changed, or PostgreSQL has not replied.
        QueueUnavailable: the versions are reset, and the orders may not be queued: call it again.
    """
    async with Pool.open(backends.postgres_dsn, size=1) as pool, control_client(backends.redis_url) as client:
        async with audited(AuditLog(pool), actor, REFETCH, {"ids": sorted(order_ids)}) as operation:
            stored = await reset_versions(pool, order_ids)
            await Producer(client, backends.stream).enqueue(order_ids, express=True)
            operation.count = len(order_ids)
        return stored
