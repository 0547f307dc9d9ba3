"""The event loop speaks to PostgreSQL itself: asyncpg, with its own pool."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from ingest.bench.select.readers import SQL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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
    async with asyncpg.create_pool(dsn, min_size=size, max_size=size) as pool:
        yield AsyncReader(pool)
