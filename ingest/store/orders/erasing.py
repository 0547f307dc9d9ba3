"""Erases orders from the database, for good.

A batch of a worker that is being stored at that moment could store the order after it was deleted: the table is locked against
writers, for milliseconds, which waits for such batches, and the next ones find the order erased. When the process dies here, all is
erased, or nothing.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from ingest.domain.errors import StoreUnavailable
from ingest.store.audit import INSERT, Phase
from ingest.store.connection import connect
from ingest.store.translation import StoreRefused, translated

# Longer than a batch takes; while it waits for one, writers wait behind it.
_LOCK_TIMEOUT = "5s"
_ATTEMPTS = 2
# A trigger or a rule may skip a deletion without an error.
_ALL_ERASED = """
SELECT NOT EXISTS (SELECT FROM orders WHERE order_id = ANY ($1::text[]))
       AND (SELECT count(DISTINCT order_id) FROM erased_orders WHERE order_id = ANY ($1::text[])) = cardinality($1::text[])
"""


async def erase_rows(dsn: str, order_ids: Sequence[str], *, operation: UUID, actor: str, action: str) -> int:
    """Erase orders, and note in the audit log that it has begun, in one transaction; returns how many had a row.

    Raises:
        StoreUnavailable: if PostgreSQL cannot be used now; calling again is safe.
        StoreRefused: if the role may not erase orders, or something in the database prevents it; nothing was erased.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _erase(dsn, order_ids, operation, actor, action)
        except StoreRefused as error:
            if not isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
                raise
            raise StoreRefused(
                f"{error}; give the DSN of the tables' owner, or of a role with the rights of `ingest migrate --api-role`"
                " and, where the tables have row-level security, BYPASSRLS"
            ) from error
        except StoreUnavailable as error:
            # A worker that was locking rows in another order.
            if attempt == _ATTEMPTS or not isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                raise
    raise AssertionError


async def _erase(dsn: str, order_ids: Sequence[str], operation: UUID, actor: str, action: str) -> int:
    ids = sorted(set(order_ids))
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction(isolation="read_committed"):
                # Where policies could hide an order, the statements fail.
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'; SET LOCAL row_security = off")
                await connection.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(
                    "INSERT INTO erased_orders (order_id) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", ids
                )
                deleted = await connection.execute("DELETE FROM orders WHERE order_id = ANY ($1::text[])", ids)
                count = int(deleted.rpartition(" ")[2])
                if not await connection.fetchval(_ALL_ERASED, ids):
                    raise StoreRefused(
                        "a trigger or a rule keeps rows in orders, or out of erased_orders: nothing was erased"
                    )
                selection = msgspec.json.encode({"ids": ids}).decode()
                await connection.execute(INSERT, operation, Phase.BEGUN.value, actor, action, selection, count)
    return count
