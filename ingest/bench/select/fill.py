"""Fills the table with real orders through the service's own store."""

import asyncio
from datetime import UTC, datetime
from itertools import islice

from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.upstream.samples import sample_orders
from ingest.store.connections.connection import connect
from ingest.store.orders.order_store import OrderStore

_BATCH = 500


def fill(dsn: str, count: int) -> list[str]:
    """Store `count` bundled orders and return their IDs."""
    documents = dict(islice(sample_orders().items(), count))
    now = datetime.now(UTC)
    rows = [OrderRow.of(decode_order(body, order_id), now, 1, now.timestamp()) for order_id, body in documents.items()]
    asyncio.run(_store(dsn, rows))
    return list(documents)


async def _store(dsn: str, rows: list[OrderRow]) -> None:
    async with OrderStore.open(dsn) as store:
        for first in range(0, len(rows), _BATCH):
            await store.upsert(rows[first : first + _BATCH])
    async with connect(dsn) as connection:
        await connection.execute("VACUUM ANALYZE orders")
