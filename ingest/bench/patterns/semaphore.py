"""Pattern 2: `asyncio.gather` with a semaphore, so that only a hundred orders are worked on at a time.

The API is spared and few connections are open, but every order is a task from the first moment, and what is to be done is
in this process alone.
"""

import asyncio

import aiohttp
import asyncpg

from ingest.bench.patterns.gather import gather, process

AT_ONCE = 100


async def main() -> None:
    """Fetch and store all orders, each when it is its turn."""
    semaphore = asyncio.Semaphore(AT_ONCE)

    async def process_in_turn(order_id: str, session: aiohttp.ClientSession, pool: asyncpg.Pool) -> None:
        async with semaphore:
            await process(order_id, session, pool)

    await gather(process_in_turn, connections=AT_ONCE)


if __name__ == "__main__":
    asyncio.run(main())
