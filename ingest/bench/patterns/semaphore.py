"""Pattern 2: `asyncio.gather` with a semaphore, so that at most a hundred orders are in flight.

This protects the API and keeps few connections open. Still, every order is a task from the beginning, and the remaining
orders exist only in this process.
"""

import asyncio

import aiohttp
import asyncpg

from ingest.bench.patterns.gather import gather, process

AT_ONCE = 100


async def main() -> None:
    """Fetch and store all orders, limited by the semaphore."""
    semaphore = asyncio.Semaphore(AT_ONCE)

    async def process_in_turn(order_id: str, session: aiohttp.ClientSession, pool: asyncpg.Pool) -> None:
        async with semaphore:
            await process(order_id, session, pool)

    await gather(process_in_turn, connections=AT_ONCE)


if __name__ == "__main__":
    asyncio.run(main())
