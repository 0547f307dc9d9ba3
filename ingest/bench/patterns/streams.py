"""Pattern 5: workers of a Redis Streams consumer group as tutorials show them; this is one process of several.

The queue outlives its workers. But each worker handles what it has read one order after the other, stores row by row, and
asks only for new entries (`>`): what was delivered to a worker that was killed, or failed once, stays pending indefinitely, as
nothing here claims it.
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
    """Handle entries until there is no new one: others run indefinitely, but a bench has to end."""
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
        with suppress(ResponseError):  # another process has made it
            await queue.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        names = (f"{socket.gethostname()}-{os.getpid()}-{number}" for number in range(WORKERS))
        await asyncio.gather(*(work(name, queue, session, pool) for name in names))


if __name__ == "__main__":
    asyncio.run(main())
