"""Creates the indexes that make lists of orders fast, without blocking writers.

They are optional, because each costs every stored order. Creating them again is safe, and rebuilds an index whose creation was interrupted.
"""

import asyncpg

from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated
from ingest.store.migrating import LOCK_SECONDS, migrating_alone, run_in_transaction

INDEXES = {
    "orders_search_stored": "(source, ingested_at, order_id)",
    "orders_search_status": "(source, status, order_id)",
    "orders_search_customer": "(source, customer_id, order_id)",
    "orders_search_placed": "(source, placed_at)",
    "orders_search_attributes": "USING gin (attributes jsonb_path_ops)",
}
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"


async def create_search_indexes(dsn: str, *, lock_seconds: float = LOCK_SECONDS) -> list[str]:
    """Create the missing indexes one after the other. Returns the names of those that were created.

    Raises:
        StoreRefused: the DSN's role does not own the table.
        StoreUnavailable: PostgreSQL cannot be used right now, or another transaction uses the table. Call again.
    """
    created = []
    async with migrating_alone(dsn), connect(dsn) as connection:
        with translated():
            for name, columns in INDEXES.items():
                if not await _is_valid(connection, name):
                    await run_in_transaction(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {name}", lock_seconds)
                    await run_in_transaction(
                        connection, f"CREATE INDEX CONCURRENTLY {name} ON orders {columns}", lock_seconds
                    )
                    created.append(name)
    return created


async def _is_valid(connection: asyncpg.Connection, name: str) -> bool:
    async with connection.transaction(readonly=True):
        return bool(await connection.fetchval(_IS_VALID, name))
