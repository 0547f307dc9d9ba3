"""Threads speak to PostgreSQL: psycopg, one thread for each connection of its pool."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg_pool import ConnectionPool

from ingest.bench.select.readers import SQL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SQL = SQL.replace("$1", "%s")


class ThreadReader:
    """Waits for a thread."""

    def __init__(self, pool: ConnectionPool, threads: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._threads = threads

    async def read(self, order_id: str) -> tuple[Any, ...] | None:
        """Wait for a thread that has read it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, order_id)

    def _fetch(self, order_id: str) -> tuple[Any, ...] | None:
        with self._pool.connection() as connection:
            return connection.execute(_SQL, (order_id,)).fetchone()


@asynccontextmanager
async def open_reader(dsn: str, size: int) -> AsyncIterator[ThreadReader]:
    """With a pool of its own."""
    # Without autocommit each read would be three round trips, for which asyncpg needs one.
    pool = ConnectionPool(dsn, min_size=size, max_size=size, kwargs={"autocommit": True}, open=False)
    with ThreadPoolExecutor(size, "read") as threads, pool:
        yield ThreadReader(pool, threads)
