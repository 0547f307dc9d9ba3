"""The calls of idle worker processes to Redis, with the real command."""

import asyncio

import pytest
from redis.asyncio import Redis
from support import Cli, becomes

from ingest.queue.layout.keys import Keys

PROCESSES = 2
SECONDS = 24.0  # several times the longest interval between calls, which may fall into the period once more
# Was 5.5 when every process did the group's maintenance.
MOST = 2.75


@pytest.mark.nightly
async def test_an_idle_process_asks_redis_less_than_three_times_a_second(cli: Cli, redis: Redis, keys: Keys) -> None:
    cli.start("worker", env={"INGEST_PROCESSES": str(PROCESSES)})

    await becomes(lambda: redis.zcard(keys.alive), PROCESSES)
    await becomes(lambda: _blocked_clients(redis), PROCESSES)
    began = asyncio.get_running_loop().time()
    await redis.config_resetstat()
    # A measured time span, in which nothing happens that the test could wait for.
    await asyncio.sleep(SECONDS)
    stats = await redis.info("commandstats")
    seconds = asyncio.get_running_loop().time() - began

    # All calls. The commands of scripts are counted under their own names.
    asked = sum(
        stats[name]["calls"] - stats[name]["failed_calls"] for name in ("cmdstat_evalsha", "cmdstat_xreadgroup")
    )
    assert asked / seconds / PROCESSES <= MOST


async def _blocked_clients(redis: Redis) -> int:
    clients: int = (await redis.info("clients"))["blocked_clients"]
    return clients
