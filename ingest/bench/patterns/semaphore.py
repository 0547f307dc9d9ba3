"""Pattern 2: `asyncio.gather` with a semaphore, so that only a hundred orders are worked on at a time.

The API is spared and few connections are open, but every order is a task from the first moment, and what is to be done is
in this process alone.
"""

import asyncio

import aiohttp
import asyncpg

from ingest.bench.patterns.job import INSERT_ASYNCPG, TIMEOUT, log_failure, order_ids, postgres_dsn, row_of, url_of

AT_ONCE = 100


async def process(
    order_id: str, semaphore: asyncio.Semaphore, session: aiohttp.ClientSession, pool: asyncpg.Pool
) -> None:
    """Fetch and store one order when it is its turn."""
    async with semaphore:
        async with session.get(url_of(order_id)) as response:
            response.raise_for_status()
            body = await response.read()
        await pool.execute(INSERT_ASYNCPG, *row_of(body, order_id))


async def main() -> None:
    """Fetch and store all orders."""
    ids = order_ids()
    semaphore = asyncio.Semaphore(AT_ONCE)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as session,
        asyncpg.create_pool(postgres_dsn()) as pool,
    ):
        tasks = (process(order_id, semaphore, session, pool) for order_id in ids)
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for order_id, result in zip(ids, results, strict=True):
        if result is not None:
            log_failure(order_id, result)


if __name__ == "__main__":
    asyncio.run(main())
