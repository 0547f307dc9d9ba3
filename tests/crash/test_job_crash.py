"""A job is killed at each moment, and another process finishes it without moving or counting an entry twice.

`INGEST_TEST_BULK` sets the number of dead letters of the replay by command, for example 300000. Then it runs at full speed, and must move
20,000 dead letters per second, with no command of Redis over 20 ms.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from crash.killed import JOB_VICTIM, run_until_killed
from dead_letter_entries import chunks, dead_fields
from redis.asyncio import Redis
from shipped import as_admin
from support import Cli, connected, eventually

from ingest.lab.servers.valkey import ValkeyServer
from ingest.queue.layout.keys import Keys

FEW = 120
MANY = int(os.environ.get("INGEST_TEST_BULK", "2000"))
IS_FULL = MANY >= 100_000
PROMISED_PER_SECOND, PROMISED_MS = 20_000, 20
ERRORS = ("currency missing at $.total_price_set", "HTTP 404", "HTTP 422: order {} is unknown", "value {} out of range")


async def fill(redis: Redis, queue: str, count: int) -> None:
    """Add dead letters with errors of several shapes."""
    entries = (
        dead_fields(f"o{number}", error=ERRORS[number % 4].format(number), origin="webhook:shop")
        for number in range(count)
    )
    for chunk in chunks(entries):
        async with redis.pipeline(transaction=False) as pipe:
            for each in chunk:
                pipe.xadd(Keys.of(queue).dead, each)
            await pipe.execute()


async def replayed(redis: Redis, queue: str) -> Counter[bytes]:
    """Count the replays of each order."""
    found: Counter[bytes] = Counter()
    after = "-"
    while entries := await redis.xrange(Keys.of(queue).express, after, count=5_000):
        found.update(fields[b"order_id"] for _, fields in entries)
        after = f"({entries[-1][0].decode()}"
    return found


@pytest.mark.parametrize("moment", ["after_step", "before_record", "after_record", "before_end", "after_end"])
async def test_a_job_killed_at_any_moment_is_continued_and_moves_each_entry_once(
    cli: Cli, env: dict[str, str], redis_url: str, dsn: str, queue_name: str, moment: str
) -> None:
    async with Redis.from_url(as_admin(redis_url)) as redis, connected(dsn) as sql:
        await fill(redis, queue_name, FEW)
        await run_until_killed(JOB_VICTIM, "dead_letters.replay", moment, "1", env=env)

        if moment != "after_end":
            # The process looks dead when its lease has expired.
            await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")
            resumed = await asyncio.to_thread(cli.run, "job", "resume", "1")
            assert (resumed.returncode, "is done: 120 done\n" in resumed.stdout) == (0, True), resumed

        [job] = await sql.fetch("SELECT state, done, gone FROM jobs")
        assert tuple(job) == ("done", FEW, 0)
        assert await replayed(redis, queue_name) == Counter(b"o%d" % number for number in range(FEW))


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    with TemporaryDirectory(prefix="ingest-") as folder, ValkeyServer(Path(folder) / "valkey") as server:
        yield server


@pytest.fixture
async def own_redis(own_valkey: ValkeyServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_valkey.url, socket_timeout=60) as redis:
        yield redis


@pytest.mark.timeout(600)
async def test_a_replay_by_command_that_is_killed_is_resumed_without_doubling(
    cli: Cli, own_valkey: ValkeyServer, own_redis: Redis, dsn: str, queue_name: str
) -> None:
    env, keys = {"INGEST_REDIS_URL": own_valkey.url}, Keys.of(queue_name)
    await fill(own_redis, queue_name, MANY)
    await own_redis.config_set("slowlog-log-slower-than", PROMISED_MS * 1000)
    # Slow enough to be killed in the middle.
    pace = () if IS_FULL else ("--rate", "1000")

    async def is_half_done() -> bool:
        return await own_redis.xlen(keys.express) > MANY / 3

    async with connected(dsn) as sql:
        running = cli.start("dead", "replay", "--all", "--yes", *pace, env=env)
        await eventually(is_half_done)
        os.killpg(running.pid, signal.SIGKILL)
        await asyncio.to_thread(running.communicate)
        moved = await own_redis.xlen(keys.express)
        assert MANY / 3 < moved < MANY
        await sql.execute("UPDATE jobs SET leased_until = clock_timestamp(), rate = NULL")

        begun = time.monotonic()
        resumed = await asyncio.to_thread(cli.run, "job", "resume", "1", env=env, timeout=300)
        seconds = time.monotonic() - begun

        assert resumed.returncode == 0, resumed.stderr
        [job] = await sql.fetch("SELECT state, done, gone, total, per_second FROM jobs")
    assert tuple(job)[:4] == ("done", MANY, 0, MANY)
    assert await replayed(own_redis, queue_name) == Counter(b"o%d" % number for number in range(MANY))
    assert await own_redis.xlen(keys.dead) == 0
    if IS_FULL:
        slow: list[Any] = await own_redis.slowlog_get(10)
        print(f"{MANY - moved} in {seconds:.1f} s by command, {job['per_second']:.0f}/s in the job, slow: {slow}")  # noqa: T201  the figures of the run
        assert job["per_second"] >= PROMISED_PER_SECOND
        assert slow == []
