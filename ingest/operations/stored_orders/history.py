"""Shows what happened to an order: who enqueued it, each attempt, and what operators did with it."""

from collections.abc import Sequence
from datetime import datetime

from ingest.domain.orders.order_history import OrderHistory
from ingest.operations.backends import Backends
from ingest.store.connections.pool import Pool
from ingest.store.connections.statements import Fetches
from ingest.store.orders.history import HistoryStore

MOST_EVENTS = 500
"""The largest page."""


async def read_history(
    pool: Fetches, source: str, order_id: str, before: datetime | None = None, limit: int = 100
) -> OrderHistory:
    """Return a page of the events of an order, the newest first. Empty if no history is kept.

    Args:
        pool: of a long-running process.
        source: name of the source of the order.
        order_id: the order.
        before: `OrderHistory.before` of the previous page.
        limit: about as many events, at most `MOST_EVENTS`.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    return await HistoryStore(pool, source).page(order_id, before, min(limit, MOST_EVENTS))


async def histories(
    sources: Sequence[Backends], order_ids: Sequence[str], limit: int
) -> dict[tuple[str, str], OrderHistory]:
    """Return the newest events of orders, by source and ID.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    async with Pool.open(sources[0].postgres_dsn, size=1) as pool:
        return {
            (each.source, order_id): await read_history(pool, each.source, order_id, limit=limit)
            for order_id in order_ids
            for each in sources
        }
