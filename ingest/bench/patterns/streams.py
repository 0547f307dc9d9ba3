"""Pattern 5: workers of a Redis Streams consumer group as in tutorials. This is one of several processes.

The queue survives its workers. However, each worker handles its entries one by one, stores row by row, and reads only
new entries (`>`). Entries that were delivered to a killed worker, or that failed once, stay pending indefinitely,
because no worker claims them.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import aiohttp
import asyncpg
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.bench.patterns.gather import process
from ingest.bench.patterns.job import TIMEOUT, log_failure, postgres_dsn, redis_url

STREAM = "bench:orders"
GROUP = "workers"
PROCESSES = 4
WORKERS = 5  # in each process
COUNT = 10
BLOCK = 500  # ms


async def work(consumer: str, queue: Redis, session: aiohttp.ClientSession, pool: asyncpg.Pool) -> None:
    """Handle entries until there is no new one, because a bench has to end."""
    read: Any = queue.xreadgroup
    while reply := await read(GROUP, consumer, {STREAM: ">"}, count=COUNT, block=BLOCK):
        for _, entries in reply:
            for entry, fields in entries:
                order_id = fields["order_id"]
                try:
                    await process(order_id, session, pool)
                except (aiohttp.ClientError, TimeoutError) as error:
                    log_failure(order_id, error)
                else:
                    await queue.xack(STREAM, GROUP, entry)


async def main() -> None:
    """Run the workers of one process."""
    async with (
        Redis.from_url(redis_url(), protocol=2, decode_responses=True) as queue,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as session,
        asyncpg.create_pool(postgres_dsn(), min_size=WORKERS, max_size=WORKERS) as pool,
    ):
        with suppress(ResponseError):  # another process has created the group
            await queue.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        names = (f"{socket.gethostname()}-{os.getpid()}-{number}" for number in range(WORKERS))
        await asyncio.gather(*(work(name, queue, session, pool) for name in names))


if __name__ == "__main__":
    asyncio.run(main())
