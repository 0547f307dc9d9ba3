"""Erases orders from the database permanently, with their history and the results of previews that contain them.

A concurrent batch of a worker could store an order after its deletion. To prevent this, the tables are locked against writers for
milliseconds: running batches finish first, and later ones find the order erased. Orders are erased in one transaction.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from ingest.domain.errors import StoreUnavailable
from ingest.domain.source_name import UNNAMED
from ingest.store.audit import INSERT, Phase
from ingest.store.connections.pool import Pool
from ingest.store.connections.translation import StoreDenied, StoreRefused

# Longer than a batch takes. While the lock waits for a batch, other writers wait behind it.
# With row_security off, statements fail if a policy could hide an order.
_LOCK = """
SET LOCAL lock_timeout = '5s'; SET LOCAL row_security = off; LOCK TABLE orders, order_history IN SHARE ROW EXCLUSIVE MODE
"""
_ATTEMPTS = 2
_FORGET_PREVIEWS = """
UPDATE jobs SET result = NULL
WHERE kind = 'orders.preview' AND source = $1 AND result IS NOT NULL
      AND EXISTS (SELECT FROM jsonb_path_query(result, '$.**.order_id') AS id WHERE id #>> '{}' = ANY ($2::text[]))
"""
# A trigger or a rule may skip a deletion without an error.
_ALL_ERASED = """
SELECT NOT EXISTS (SELECT FROM orders WHERE source = $1 AND order_id = ANY ($2::text[]))
       AND (SELECT count(DISTINCT order_id) FROM erased_orders WHERE source = $1 AND order_id = ANY ($2::text[]))
           = cardinality($2::text[])
"""


async def erase_rows(
    pool: Pool, order_ids: Sequence[str], *, operation: UUID, actor: str, action: str, source: str = UNNAMED
) -> int:
    """Erase orders of one source, and record the beginning in the audit log, in one transaction. Returns how many had a row.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used now. Calling again is safe.
        StoreRefused: the role may not erase orders, or the database prevents it. No order was erased.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _erase(pool, source, sorted(set(order_ids)), (operation, Phase.BEGUN.value, actor, action))
        except StoreDenied as error:
            raise StoreDenied(
                f"PostgreSQL reports: {error.__cause__}; give the DSN of the tables' owner, or of a role with the rights of"
                " `ingest migrate --api-role` and, where the tables have row-level security, BYPASSRLS"
            ) from error
        except StoreUnavailable as error:
            # A worker was locking rows in another order.
            if attempt == _ATTEMPTS or not isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                raise
    raise AssertionError


async def _erase(pool: Pool, source: str, ids: list[str], audited: tuple[Any, ...]) -> int:
    async def work(connection: asyncpg.Connection) -> int:
        await connection.execute(_LOCK)
        await connection.execute(
            "INSERT INTO erased_orders (source, order_id) SELECT $1::text, unnest($2::text[]) ON CONFLICT DO NOTHING",
            source,
            ids,
        )
        deleted = await connection.execute(
            "DELETE FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])", source, ids
        )
        count = int(deleted.rpartition(" ")[2])
        await connection.execute(
            "DELETE FROM order_history WHERE source = $1 AND order_id = ANY ($2::text[])", source, ids
        )
        await connection.execute(_FORGET_PREVIEWS, source, ids)
        if not await connection.fetchval(_ALL_ERASED, source, ids):
            raise StoreRefused("a trigger or a rule keeps rows in orders, or out of erased_orders: nothing was erased")
        selection = msgspec.json.encode({"ids": ids}).decode()
        await connection.execute(INSERT, *audited, selection, count, source)
        return count

    return await pool.transact(work)
