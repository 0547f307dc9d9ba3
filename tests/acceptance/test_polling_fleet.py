"""Three hosts poll one shop, and are killed while it changes. Every change is stored within two polls, or after its second.

Each host is an `ingest worker` command with its own process group and, if libfaketime is installed, its own clock. The full size, which
takes 20 minutes, runs with `INGEST_TEST_POLL=full`. It prints its figures.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.listed_shop import ListedShop, listed_shop
from integration.scene import Scene, document
from scripted_http import Received
from support import Cli, connected, eventually

from ingest.domain.fetch.list_clock import REPEATED_AFTER
from ingest.domain.fetch.listed import SECOND
from ingest.queue.produce.producer import Producer
from ingest.store.polls import LEASE

FULL = os.environ.get("INGEST_TEST_POLL") == "full"
CHANGES, SECONDS, KILLS, EVERY = (10_000, 1_200.0, 10, 30.0) if FULL else (100, 4.0, 1, 1.0)
WEBHOOKS = 0.01
LATE, LATE_BY = 0.01, (20.0 if FULL else 2.0)
OVERLAP = 60 if FULL else 10
# After this time, an order with a time of whole seconds is fetched once more.
ENDED = SECOND + REPEATED_AFTER
# A process that is killed while it reads keeps the others from reading until its lease ends.
WITHIN = 2 * EVERY + ENDED.total_seconds() + (0 if FULL else LEASE + 5)
HOSTS = {"a": "+0s", "b": "+90s", "c": "-90s"}
CAN_FAKE_TIME = (FAKETIME := Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")).exists()

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS + 300)]


@dataclass(slots=True)
class CountedShop(ListedShop):
    """A shop that records when each version was fetched, and which host reads the list. The status of an order counts its changes."""

    revisions: Counter[str] = field(default_factory=Counter)
    served: defaultdict[tuple[str, datetime], list[float]] = field(default_factory=lambda: defaultdict(list))
    on_page: "asyncio.Future[str] | None" = None

    def respond(self, received: Received) -> bytes:
        path = received.line.split()[1]
        if path.startswith("/orders/"):
            order_id = path.rpartition("/")[2]
            self.served[order_id, self.orders[order_id]].append(time.monotonic())
        elif self.on_page is not None and not self.on_page.done():
            self.on_page.set_result(received.headers["x-host"])
        return ListedShop.respond(self, received)

    def show(self, order_id: str, at: datetime) -> "Change":
        """Show a change of an order, with this time."""
        self.orders[order_id] = at
        self.revisions[order_id] += 1
        return Change(at, self.revisions[order_id], time.monotonic())

    def document(self, order_id: str) -> bytes:
        return document(order_id, status=f"{self.revisions[order_id]}", updated_at=self.orders[order_id].isoformat())


@dataclass(slots=True)
class Change:
    """A change of an order, and when it became visible and stored."""

    at: datetime
    revision: int
    visible: float
    stored: float | None = None


@pytest.fixture
async def shop() -> AsyncIterator[CountedShop]:
    async with listed_shop(CountedShop(ahead=timedelta(seconds=45), size=100)) as shop:
        yield shop  # type: ignore[misc]  # the one that was passed


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    servers = {
        "INGEST_REDIS_URL": scene.redis_url,
        "INGEST_POSTGRES_DSN": scene.dsn,
        "INGEST_STREAM": scene.queue,
        "INGEST_CONCURRENCY": "20",
    }
    with closing_workers(cli, servers) as workers:
        yield workers


def start(workers: Workers, shop: CountedShop, host: str) -> WorkerCommand:
    settings = shop.settings(overlap=f"{OVERLAP}s") | {
        "poll": EVERY,
        "upstream_headers": f"X-Host: {host}",
        "processes": 1,
    }
    env = {f"INGEST_{name.upper()}": str(value) for name, value in settings.items()}
    if CAN_FAKE_TIME:
        env |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": HOSTS[host], "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    command = WorkerCommand(workers.cli.start("worker", env=workers.env | env, new_interpreter=True))
    workers.started.append(command)
    return command


async def change_orders(shop: CountedShop, producer: Producer, changes: dict[str, list[Change]]) -> None:
    """Add and change orders evenly over the time."""
    began, draw = time.monotonic(), random.Random(1)
    late: dict[str, asyncio.Task[None]] = {}
    for number in range(CHANGES):
        await asyncio.sleep(max(0.0, began + number * SECONDS / CHANGES - time.monotonic()))
        # Some orders change several times within the second of their times.
        newest = range(max(0, len(changes) - 50), len(changes))
        order_id = f"o-{draw.choice(newest)}" if newest and draw.random() < 0.5 else f"o-{len(changes)}"
        known = changes.setdefault(order_id, [])
        if order_id in late and not late[order_id].done():
            continue
        if draw.random() < LATE and not known:
            late[order_id] = asyncio.create_task(appear_late(shop, order_id, known))
            continue
        known.append(shop.show(order_id, shop.now()))
        if draw.random() < WEBHOOKS:
            await producer.try_announce([order_id], coalesce=60.0)
    await asyncio.gather(*late.values())


async def appear_late(shop: CountedShop, order_id: str, known: list[Change]) -> None:
    at = shop.now()
    await asyncio.sleep(LATE_BY)
    known.append(shop.show(order_id, at))


async def watch(dsn: str, changes: dict[str, list[Change]]) -> None:
    """Note when each change is stored."""
    last = datetime.fromisoformat("2000-01-01T00:00:00Z")
    async with connected(dsn) as connection:
        while True:
            rows = await connection.fetch(
                "SELECT order_id, status, ingested_at FROM orders WHERE ingested_at > $1", last - timedelta(seconds=3)
            )
            now = time.monotonic()
            for row in rows:
                last = max(last, row["ingested_at"])
                for change in changes.get(row["order_id"], []):
                    if change.stored is None and change.revision <= int(row["status"]):
                        change.stored = now
            await asyncio.sleep(0.1)


async def kill_hosts(workers: Workers, shop: CountedShop, hosts: dict[str, WorkerCommand]) -> list[float]:
    """Kill a host at regular intervals, either the host that is reading the list or any other."""
    killed, draw = [], random.Random(2)
    for number in range(KILLS):
        await asyncio.sleep(SECONDS / (KILLS + 1))
        if FULL and number % 2 == 0:
            shop.on_page = asyncio.get_running_loop().create_future()
            host = await shop.on_page
        else:
            host = draw.choice(sorted(hosts))
        hosts[host].ask_group(signal.SIGKILL)
        killed.append(time.monotonic())
        await hosts[host].exit_code()
        hosts[host] = start(workers, shop, host)
    return killed


async def turns(scene: Scene) -> int:
    """How often a process has taken the turn to read the list."""
    return int((await scene.sql("SELECT fence FROM polls"))[0][0])


async def further_readings(scene: Scene, count: int) -> int:
    """Wait until so many further readings have enqueued their orders, and these are stored. Return the number of all readings."""
    before = await turns(scene)

    async def have_begun() -> bool:
        return await turns(scene) > before + count

    await eventually(have_begun, within=(count + 2) * EVERY + LEASE + 60, every=0.2)
    await eventually(scene.is_finished, within=60)
    return await turns(scene)


async def test_every_change_is_stored_within_two_polls_while_hosts_are_killed(
    scene: Scene, shop: CountedShop, workers: Workers
) -> None:
    changes: dict[str, list[Change]] = {}
    hosts = {host: start(workers, shop, host) for host in HOSTS}
    for host in hosts.values():
        await host.says("process_started", process="worker-0")
    await eventually(lambda: bool(shop.lists), within=60)
    watching = asyncio.create_task(watch(scene.dsn, changes))

    killing = asyncio.create_task(kill_hosts(workers, shop, hosts))
    await change_orders(shop, Producer(scene.redis, scene.queue), changes)
    made = list(itertools.chain.from_iterable(changes.values()))
    await eventually(lambda: all(change.stored for change in made), within=WITHIN + 10)
    killed = await killing
    newest = max(shop.orders.values())
    await eventually(lambda: shop.now() > newest + ENDED, within=60)
    await further_readings(scene, 1)
    # Further readings fetch nothing.
    fetched = sum(map(len, shop.served.values()))
    readings = await further_readings(scene, 2)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching

    delays = sorted(change.stored - change.visible for change in made if change.stored is not None)
    overdue = [
        (order_id, change.at.isoformat(), round(change.stored - change.visible, 1))
        for order_id, versions in changes.items()
        for change in versions
        if change.stored is not None and change.stored - change.visible > WITHIN
    ]
    # By the list, and after the end of its second. A reading enqueues an order again that is in flight.
    more_often = [times for times in shop.served.values() if len(times) > 2]
    repeated = [times for times in more_often if len(times) > 3]
    figures = {
        "changes": len(made),
        "orders": len(changes),
        "readings": readings,
        "pages": len(shop.lists),
        "kills": len(killed),
        "stored_within_s": {
            "median": delays[len(delays) // 2],
            "p99": delays[len(delays) * 99 // 100],
            "max": delays[-1],
        },
        "versions": len(shop.served),
        "fetched": fetched,
        "fetched_twice": sum(len(times) == 2 for times in shop.served.values()),
        "fetched_more_often": len(more_often),
        "faked_clocks": CAN_FAKE_TIME,
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")
    assert len(killed) == KILLS
    assert overdue == []
    assert {order_id: row["status"] for order_id, row in (await scene.rows()).items()} == {
        order_id: f"{versions[-1].revision}" for order_id, versions in changes.items()
    }
    assert sum(map(len, shop.served.values())) == fetched
    assert len(more_often) <= len(shop.served) / 4
    # A killed process had fetched them, and another one fetches them again.
    assert all(any(times[0] - 1 <= at <= times[-1] for at in killed) for times in repeated)
