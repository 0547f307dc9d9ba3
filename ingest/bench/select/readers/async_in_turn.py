"""asyncpg's pool, but a request waits for its turn before it asks the pool.

The pool lets a newcomer overtake those who wait: a connection that comes back wakes the first of them, and whoever asks before
that one runs takes it; the first then queues up anew, behind all others (asyncpg 0.32, on `asyncio.Queue`). `asyncio.Semaphore`
serves in order.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ingest.bench.select.readers import async_plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ingest.bench.select.readers import Reader


class FairReader:
    """Waits in a semaphore of the pool's size."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self._turns = asyncio.Semaphore(size)

    async def read(self, order_id: str) -> tuple[Any, ...] | None:
        """Wait for a turn, then for the row."""
        async with self._turns:
            return await self._reader.read(order_id)


@asynccontextmanager
async def open_reader(dsn: str, size: int) -> AsyncIterator[FairReader]:
    """With a pool of its own."""
    async with async_plain.open_reader(dsn, size) as reader:
        yield FairReader(reader, size)
