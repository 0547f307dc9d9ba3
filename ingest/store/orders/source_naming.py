"""Gives the rows of the unnamed source to a named one, batch by batch.

Each batch is one transaction with locks on its rows only. If the process dies, the next call continues with the remaining rows. If an
order exists in both sources, the newer row stays. Erased orders are moved first, so that none of them is stored again under its new
name.
"""

from collections.abc import Callable

import asyncpg

from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated

_BATCH = 2000
# The last one moves a single row.
_ATTEMPTS = 12
# Rows are locked in the order of their keys, as by workers.
_ERASED = f"""
WITH batch AS (
    SELECT order_id FROM erased_orders WHERE source = $1 AND order_id > $3 ORDER BY order_id LIMIT {_BATCH} FOR UPDATE
), moved AS (
    INSERT INTO erased_orders (source, order_id, erased_at)
    SELECT $2, order_id, erased_at FROM erased_orders JOIN batch USING (order_id) WHERE source = $1
    ON CONFLICT DO NOTHING
), deleted AS (
    DELETE FROM erased_orders WHERE source = $1 AND order_id IN (SELECT order_id FROM batch)
)
SELECT max(order_id), count(*) FROM batch
"""  # noqa: S608  a constant
_BATCH_OF_ORDERS = """
SELECT order_id FROM orders WHERE source = $1 AND order_id > $2 ORDER BY order_id LIMIT $3 FOR UPDATE
"""
# In both sources. Of equal rows, one of the named source stays.
_OLDER = """
DELETE FROM orders AS older USING orders AS newer
WHERE older.source = $1 AND newer.source = $2 AND older.order_id = ANY ($3::text[]) AND newer.order_id = older.order_id
  AND {condition}
"""
_OLDER_UNNAMED = _OLDER.format(condition="(older.version, older.fetched_at) <= (newer.version, newer.fetched_at)")
_OLDER_NAMED = _OLDER.format(condition="(older.version, older.fetched_at) < (newer.version, newer.fetched_at)")
_RENAME = "UPDATE orders SET source = $2 WHERE source = $1 AND order_id = ANY ($3::text[])"


async def name_existing(dsn: str, source: str, *, on_progress: Callable[[int], None] = lambda _: None) -> int:
    """Give the rows of the unnamed source to this one. Returns how many rows of `orders` the unnamed source no longer has.

    Args:
        dsn: DSN with a role that owns the tables.
        source: name of the source.
        on_progress: is called with the number of rows so far.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used now. Calling again continues.
    """
    async with connect(dsn) as connection:
        with translated():
            after: str | None = ""
            while after is not None:
                async with connection.transaction(isolation="read_committed"):
                    [(after, _)] = await connection.fetch(_ERASED, UNNAMED, source, after)
            moved, ids = 0, [""]
            while ids := await _move_orders(connection, source, ids[-1]):
                moved += len(ids)
                on_progress(moved)
    return moved


async def _move_orders(connection: asyncpg.Connection, source: str, after: str) -> list[str]:
    """Move the rows after this order ID, and return their order IDs. Empty at the end."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with connection.transaction(isolation="read_committed"):
                # A smaller batch after each failure takes less time, in which workers store fewer of its orders.
                size = max(1, _BATCH >> (attempt - 1))
                ids = [order_id for (order_id,) in await connection.fetch(_BATCH_OF_ORDERS, UNNAMED, after, size)]
                await connection.execute(_OLDER_UNNAMED, UNNAMED, source, ids)
                await connection.execute(_OLDER_NAMED, source, UNNAMED, ids)
                await connection.execute(_RENAME, UNNAMED, source, ids)
        except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            # A worker has just stored an order of the batch under its new name, or another call has moved it to another partition.
            if attempt == _ATTEMPTS:
                raise
        else:
            return ids
    raise AssertionError
