"""The event loop speaks to PostgreSQL itself: asyncpg, with the service's own kind of pool."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ingest.bench.select.readers import SQL
from ingest.store.connection import open_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg


class AsyncReader:
    """Waits in the pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def read(self, order_id: str) -> tuple[Any, ...] | None:
        """Wait for a connection, then for the row."""
        row = await self._pool.fetchrow(SQL, order_id)
        return None if row is None else tuple(row)


@asynccontextmanager
async def open_reader(dsn: str, size: int) -> AsyncIterator[AsyncReader]:
    """With a pool of its own."""
    async with open_pool(dsn, size, statement_cache=True) as pool:
        yield AsyncReader(pool)
