"""Pattern 1: one `asyncio.gather` for all orders.

All orders are tasks from the beginning, so that memory and open connections grow with their number. The remaining
orders, and orders that are fetched but not stored, exist only in this process.
"""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import asyncpg

from ingest.bench.patterns.job import INSERT_ASYNCPG, TIMEOUT, log_failure, order_ids, postgres_dsn, row_of, url_of

Process = Callable[[str, aiohttp.ClientSession, asyncpg.Pool], Awaitable[None]]


async def process(order_id: str, session: aiohttp.ClientSession, pool: asyncpg.Pool) -> None:
    """Fetch and store one order."""
    async with session.get(url_of(order_id)) as response:
        response.raise_for_status()
        body = await response.read()
    await pool.execute(INSERT_ASYNCPG, *row_of(body, order_id))


async def gather(process: Process, connections: int) -> None:
    """Fetch and store all orders over at most `connections` to the API, or 0 for no limit."""
    ids = order_ids()
    connector, timeout = aiohttp.TCPConnector(limit=connections), aiohttp.ClientTimeout(TIMEOUT)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        asyncpg.create_pool(postgres_dsn()) as pool,
    ):
        results = await asyncio.gather(*(process(order_id, session, pool) for order_id in ids), return_exceptions=True)
    for order_id, result in zip(ids, results, strict=True):
        if result is not None:
            log_failure(order_id, result)


if __name__ == "__main__":
    asyncio.run(gather(process, connections=0))
