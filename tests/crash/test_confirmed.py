"""Confirmed orders are in the queue after the announcing process was killed, or after Redis lost unsynced data.

`make crash` kills a thousand times. The tests of Redis need a C compiler, see `power`.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.commands import WorkerCommand
from crash.power import POWERED, Host, host
from redis.asyncio import Redis
from servers.kinds import Kind
from support import Cli, Process, eventually, start_program

from ingest.domain.deliveries.accepted import Durability
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

ANNOUNCER = Path(__file__).with_name("announcer.py")
KILLS = int(os.environ.get("INGEST_TEST_KILLS", "8"))
KEYS = Keys.of("orders")

pytestmark = pytest.mark.timeout(120 + 5 * KILLS)
powered = pytest.mark.parametrize("kind", POWERED, ids=[kind.name for kind in POWERED])


def policy(kind: Kind) -> str:
    """The rarest permitted way of syncing."""
    return "everysec" if kind.is_redis_since(8) else "always"


class Announcing:
    """Processes that announce in sequence, and the confirmations of each."""

    def __init__(self, folder: Path, url: str, durability: Durability) -> None:
        self._folder = folder
        self._environment = {**os.environ, "INGEST_REDIS_URL": url, "INGEST_STREAM": "orders"}
        self._durability = durability
        self._process: Process | None = None
        self._number = 0

    def start(self) -> None:
        self._number += 1
        prefix = f"p{self._number}"
        self._process = start_program(ANNOUNCER, self._durability, prefix, self._folder / prefix, env=self._environment)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=30)
        assert self._process.returncode == -signal.SIGKILL

    async def confirmed_more_than(self, count: int) -> None:
        """Wait until this process has received confirmations of more orders than that."""
        file = self._folder / f"p{self._number}"

        async def is_so() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._process.communicate()
            return file.exists() and file.read_bytes().count(b"\n") > count

        await eventually(is_so, within=60)

    def confirmed(self) -> set[str]:
        return {line for file in self._folder.glob("p*") for line in file.read_text().splitlines()}


async def queued(url: str) -> Counter[str]:
    """How often each order is in the stream, read in pages because of a million entries."""
    found: Counter[str] = Counter()
    after: Any = b"-"
    async with Redis.from_url(url) as redis:
        while entries := await redis.xrange(KEYS.stream, after, count=10_000):
            found.update(fields[b"order_id"].decode() for _, fields in entries)
            after = b"(" + entries[-1][0]
    return found


@powered
async def test_what_was_confirmed_is_there_though_the_process_and_redis_are_killed_at_any_moment(
    kind: Kind, tmp_path: Path
) -> None:
    chance = random.Random()
    lost = 0
    with host(kind, policy(kind)) as redis:
        announcing = Announcing(tmp_path, redis.server.url, Durability.FSYNC)
        announcing.start()
        for _ in range(KILLS):
            await announcing.confirmed_more_than(0)
            await asyncio.sleep(chance.uniform(0, 0.5))  # when to kill, by chance
            if chance.random() < 0.5:
                announcing.kill()
                announcing.start()
            else:
                lost += await asyncio.to_thread(redis.lose_power)
        announcing.kill()
        lost += redis.lose_power()

        confirmed, found = announcing.confirmed(), await queued(redis.server.url)

    print(f"{kind.name}: {KILLS} kills, {lost:,} bytes lost, {len(confirmed):,} orders confirmed")  # noqa: T201
    assert confirmed
    assert confirmed - found.keys() == set(), "each that was confirmed is there"
    assert set(found.values()) == {1}, "once"


@powered
async def test_what_the_api_answered_202_is_there_though_its_process_and_redis_are_killed_at_any_moment(
    kind: Kind, cli: Cli
) -> None:
    chance = random.Random()
    confirmed: list[str] = []

    async def post(session: aiohttp.ClientSession, caller: int) -> None:
        for number in count():
            order_id = f"{caller}-{number}"
            with suppress(aiohttp.ClientError):
                async with session.post("/v1/orders", json={"order_ids": [order_id]}) as answer:
                    if answer.status == HTTPStatus.ACCEPTED:
                        confirmed.append(order_id)

    with host(kind, "always") as redis:
        # One of several, because a process that dies often is restarted only after a delay.
        processes = str(min(8, 2 + KILLS // 50))
        settings = {
            "INGEST_API_PORT": "0",
            "INGEST_API_METRICS_PORT": "0",
            "INGEST_API_PROCESSES": processes,
            "INGEST_DURABILITY": "fsync",
        }
        queue = {"INGEST_REDIS_URL": redis.server.url, "INGEST_STREAM": "orders"}
        api = WorkerCommand(cli.start("api", env={**settings, **queue}))
        url = str((await api.says("listening"))["url"])
        async with aiohttp.ClientSession(url) as session:
            callers = [asyncio.create_task(post(session, caller)) for caller in range(20)]
            try:
                for _ in range(KILLS):
                    before = len(confirmed)
                    await eventually(lambda: _is_more(confirmed, before))  # noqa: B023  called at once
                    await asyncio.sleep(chance.uniform(0, 0.05))  # when to kill, by chance
                    if chance.random() < 0.9:
                        pids = await eventually(partial(_alive, api))
                        with suppress(ProcessLookupError):
                            os.kill(chance.choice(pids), signal.SIGKILL)
                    else:
                        await asyncio.to_thread(redis.lose_power)
            finally:
                for caller in callers:
                    caller.cancel()
                await asyncio.gather(*callers, return_exceptions=True)
        redis.lose_power()
        found = await queued(redis.server.url)
        api.close()

    died = len(api.events("process_died"))
    print(f"{kind.name}: {KILLS} kills, {died} processes died, {len(confirmed):,} orders answered 202")  # noqa: T201
    assert set(confirmed) - found.keys() == set()


async def lost_of(redis: Host, durability: Durability) -> tuple[int, int]:
    """How many orders were confirmed shortly before the power failed, and how many of them are lost."""
    confirmed: list[str] = []
    async with Producer.connect(redis.server.url, durability=durability) as producer:

        async def announce(caller: int) -> None:
            while True:
                order_id = f"{caller}-{len(confirmed)}"
                await producer.try_announce(order_id)
                confirmed.append(order_id)

        callers = [asyncio.create_task(announce(caller)) for caller in range(20)]
        await eventually(lambda: _is_more(confirmed, 1000))
        # Immediately, so that no order is confirmed between the power failure and the count.
        redis.lose_power()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    return len(confirmed), len(set(confirmed) - (await queued(redis.server.url)).keys())


async def _alive(api: WorkerCommand) -> list[int]:
    """The processes of the API that have not been killed yet."""
    pids = {event["pid"] for event in api.events("process_started")}
    return [pid for pid in pids - {event["pid"] for event in api.events("process_died")} if _is_running(pid)]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def _is_more(listed: list[str], count: int) -> bool:
    return len(listed) > count


@powered
async def test_in_memory_what_was_confirmed_in_the_last_second_is_lost_with_the_power(kind: Kind) -> None:
    confirmed = lost = 0
    for _ in range(5):  # the disk may have got everything just before
        with host(kind, "everysec") as redis:
            confirmed, lost = await lost_of(redis, Durability.MEMORY)
        if lost:
            break

    print(f"{kind.name}: {lost:,} of {confirmed:,} confirmed orders lost")  # noqa: T201
    assert 0 < lost <= confirmed


UNRELIABLE = [kind for kind in POWERED if kind.product == "valkey"]


@pytest.mark.parametrize("kind", UNRELIABLE, ids=[kind.name for kind in UNRELIABLE])
async def test_some_servers_say_that_their_disk_has_what_it_has_not(kind: Kind) -> None:
    """Shows why WAITAOF is not used on these versions. If this test fails, they have been corrected."""
    with host(kind, "everysec") as redis:
        async with Redis.from_url(redis.server.url) as client, client.client() as connection:
            said = []
            for number in range(20):
                await connection.xadd("s", {"number": number})
                said.append(await connection.waitaof(1, 0, 5000))
        redis.lose_power()
        async with Redis.from_url(redis.server.url) as client:
            left = await client.xlen("s")

    assert said == [[1, 0]] * 20
    assert left < 20
