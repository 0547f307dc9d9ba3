"""A host of a chaos run: its disk and its clock."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from crash.power import POWERED, noting, set_clock, with_clock
from redis.asyncio import Redis
from redis.exceptions import RedisError
from servers.kinds import Kind
from support import eventually

from chaos.disk import CAN_FILL, disk, fill, free

HOUR = 3_600
powered = pytest.mark.parametrize("kind", POWERED, ids=[kind.name for kind in POWERED])


@powered
async def test_the_clock_of_a_running_server_is_set_and_the_time_that_it_measures_goes_on(
    kind: Kind, tmp_path: Path
) -> None:
    with noting(kind, tmp_path).server(tmp_path / "server") as server:
        async with Redis.from_url(server.url) as client:
            await client.set("short", "", px=HOUR * 500)
            for ahead in (HOUR, -HOUR):
                set_clock(tmp_path / "server.clock", ahead)
                await eventually(lambda ahead=ahead: _is_ahead(client, ahead))
            assert (await client.info("server"))["uptime_in_seconds"] < HOUR


async def _is_ahead(client: Redis, seconds: int) -> bool:
    now, _ = await client.time()
    return abs(now - time.time() - seconds) < 5


@pytest.mark.parametrize("ahead", [HOUR, -HOUR] if POWERED else [])
def test_a_python_program_has_the_clock_of_its_file(tmp_path: Path, ahead: int) -> None:
    variables = with_clock(tmp_path / "clock")
    set_clock(tmp_path / "clock", ahead)
    program = "import datetime, time; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"

    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)

    wall, dated, steady = map(float, done.stdout.split())
    assert abs(wall - time.time() - ahead) < 5
    assert abs(dated - wall) < 1
    assert abs(steady - time.monotonic()) < 5


@pytest.mark.parametrize("kind", POWERED if CAN_FILL else [], ids=lambda kind: kind.name)
async def test_a_server_on_a_full_disk_ends_and_has_all_that_it_confirmed(kind: Kind, tmp_path: Path) -> None:
    with (
        disk(tmp_path / "server"),
        kind.server(tmp_path / "server", appendonly="yes", appendfsync="always") as server,
    ):
        async with Redis.from_url(server.url) as client:
            confirmed = await client.rpush("list", "first")
            fill(tmp_path / "server")
            with suppress(RedisError, OSError):
                while True:
                    confirmed = await client.rpush("list", "x" * 1_000)
        await eventually(lambda: not server.is_running())
        free(tmp_path / "server")
        server.start()
        async with Redis.from_url(server.url) as client:
            assert await client.llen("list") == confirmed
