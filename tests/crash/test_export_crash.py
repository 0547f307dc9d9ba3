"""An export is killed at each moment, and another process finishes it, so that the file contains each dead letter once."""

import asyncio
import json
import os
import signal

import aiohttp
import pytest
from acceptance.commands import WorkerCommand
from crash.killed import JOB_VICTIM, run_until_killed
from dead_letter_entries import dead_fields
from redis.asyncio import Redis
from shipped import as_admin
from support import Cli, connected, eventually

from ingest.queue.layout.keys import Keys
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput

# Dead letters, and the characters of their documents, so that a page of them is a part of the file.
MANY, DOCUMENT = 240, 10_000
API = {"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}


async def fill(redis: Redis, queue: str) -> None:
    for number in range(MANY):
        await redis.xadd(Keys.of(queue).dead, dead_fields(f"o{number}", document="x" * DOCUMENT))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "moment", ["after_step", "before_record", "before_part", "after_part", "after_record", "before_end", "after_end"]
)
async def test_an_export_killed_at_any_moment_is_continued_and_contains_each_dead_letter_once(
    cli: Cli, env: dict[str, str], redis_url: str, dsn: str, queue_name: str, moment: str
) -> None:
    async with Redis.from_url(as_admin(redis_url)) as redis, connected(dsn) as sql, Pool.open(dsn, size=1) as pool:
        await fill(redis, queue_name)
        await run_until_killed(JOB_VICTIM, "dead_letters.export", moment, "1", env=env)

        if moment != "after_end":
            # The process looks dead when its lease has expired.
            await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")
            resumed = await asyncio.to_thread(cli.run, "job", "resume", "1")
            done = f"is done: {MANY} done\n"
            assert (resumed.returncode, done in resumed.stdout) == (0, True), resumed

        [job] = await sql.fetch("SELECT state, done, gone, examined FROM jobs")
        parts = await sql.fetchval("SELECT count(*) FROM job_output")
        lines = b"".join([text async for text in JobOutput(pool).texts(1)]).splitlines()
        assert tuple(job) == ("done", MANY, 0, MANY)
        assert [json.loads(line)["order_id"] for line in lines] == [f"o{number}" for number in range(MANY)]
        assert parts > 2


async def test_an_export_of_a_killed_api_is_continued_by_another_and_downloaded_there(
    cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    async with Redis.from_url(as_admin(redis_url)) as redis, connected(dsn) as sql:
        await fill(redis, queue_name)
        first = WorkerCommand(cli.start("api", env=API))
        body = {"kind": "dead_letters.export", "selection": {"everything": True}, "rate": 60}
        async with aiohttp.ClientSession(str((await first.says("listening"))["url"])) as http:
            async with http.post("/v1/jobs", json=body) as response:
                path = f"/v1/jobs/{(await response.json())['id']}/output"

            async def has_begun() -> bool:
                return bool(await sql.fetchval("SELECT count(*) > 0 FROM job_output"))

            await eventually(has_begun)
            os.killpg(first.process.pid, signal.SIGKILL)
        first.close()
        assert await sql.fetchval("SELECT state FROM jobs") == "active"

        second = WorkerCommand(cli.start("api", env=API))
        async with aiohttp.ClientSession(str((await second.says("listening"))["url"])) as http:
            await second.says("job_ended", kind="dead_letters.export", state="done")
            async with http.get(path) as response:
                lines = (await response.text()).splitlines()
        second.close()

    assert [json.loads(line)["order_id"] for line in lines] == [f"o{number}" for number in range(MANY)]
