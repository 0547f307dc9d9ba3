"""A queue is divided into six partitions, and then into two, while orders are enqueued and processes are killed.

Each order has several versions, and the last one has to be stored. Orders without a usable document have to become dead letters, and
move. `INGEST_TEST_PARTITIONS=full` runs it at full size.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from cluster_set import ClusterSet
from integration.scene import Scene, document
from redis.asyncio import Redis
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.partitions import Layout
from ingest.lab.servers import EmbeddedServers
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.produce.producer import Producer

FULL = os.environ.get("INGEST_TEST_PARTITIONS") == "full"
# Orders per second, seconds of load after each change, and seconds between two kills.
RATE, SECONDS, BETWEEN_KILLS = (1_000, 30.0, 2.0) if FULL else (200, 1.0, 0.7)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TICK = 0.05

pytestmark = pytest.mark.timeout(600 if FULL else 180)


class Load:
    """Enqueues new orders, and earlier ones again with a later version.

    Attributes:
        versions: the last version of each order that can be stored.
        broken: orders without a usable document.
    """

    def __init__(self, scene: Scene, durability: Durability, seed: int) -> None:
        self._durability = durability
        self._scene = scene
        self._random = random.Random(seed)
        self.versions: dict[str, datetime] = {}
        self.broken: set[str] = set()
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Enqueue until it stops, by two producers that start with one partition."""
        async with asyncio.TaskGroup() as tasks:
            for name in ("a", "b"):
                tasks.create_task(self._produce(name))

    async def _produce(self, name: str) -> None:
        async with Producer.connect(self._scene.redis_url, self._scene.queue, durability=self._durability) as producer:
            number = 0
            while not self.stopping.is_set():
                due = asyncio.get_running_loop().time() + TICK
                orders = []
                for _ in range(max(1, round(RATE * TICK / 2))):
                    number += 1
                    orders.append(self._next(f"{name}-{number}", number))
                await producer.enqueue(orders)
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    def _next(self, order_id: str, number: int) -> str:
        if number % 100 == 0:
            self._scene.api.put_order(order_id, b'{"id": 1}')
            self.broken.add(order_id)
            return order_id
        if number % 4 == 0:
            order_id = f"{order_id[0]}-{self._random.randrange(1, number)}"
            if order_id in self.broken:
                return order_id
        version = self.versions.get(order_id, EPOCH) + timedelta(hours=1)
        self._scene.api.put_order(order_id, document(order_id, updated_at=version.isoformat()))
        self.versions[order_id] = version
        return order_id


@pytest.fixture(params=["standalone", "cluster", "failover"] if FULL else ["standalone"])
def servers_of_queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ClusterSet | None]]:
    """The name of the case, and a cluster unless the queue is on one server."""
    if request.param == "standalone":
        yield request.param, None
        return
    with ClusterSet.open(KINDS[0], tmp_path) as cluster, ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, cluster.become_ready()).result()
        yield request.param, cluster


@pytest.fixture
def redis_url(servers: EmbeddedServers, servers_of_queue: tuple[str, ClusterSet | None]) -> str:
    _, cluster = servers_of_queue
    return servers.redis_url if cluster is None else cluster.url()


@pytest.fixture
async def workers(cli: Cli, scene: Scene) -> AsyncIterator[Workers]:
    scene.api.behave(latency="0.05", error_rate=0.02)
    own = {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_HEARTBEAT_TTL": "2", "INGEST_CONCURRENCY": "200"}
    with closing_workers(cli, own) as workers:
        yield workers


async def kill_workers(running: list[WorkerCommand], workers: Workers, draw: random.Random) -> None:
    """Kill a worker process, or sometimes a whole command, again and again."""
    while True:
        await asyncio.sleep(BETWEEN_KILLS)
        victim = draw.randrange(len(running))
        with suppress(ProcessLookupError):
            if draw.random() < 0.3:
                running[victim].ask_group(signal.SIGKILL)
                running[victim] = workers.start(processes=2)
            else:
                running[victim].ask_child(f"worker-{draw.randrange(2)}", signal.SIGKILL)


async def fail_over(cluster: ClusterSet, key: str) -> None:
    """Kill the primary that owns a key, and restart it when its replica was promoted."""
    primary = await cluster.owner(key)
    primary.kill()
    await cluster.await_other_than(primary, key)
    await cluster.restart(primary)


async def change(
    cli: Cli, scene: Scene, partitions: int, failing: ClusterSet | None, killing: asyncio.Task[None]
) -> None:
    """Change the partitions with a command that is killed halfway and a second command that completes."""
    record = LayoutRecord(scene.redis, scene.queue)
    killed = cli.start("partitions", "set", str(partitions))

    async def is_recorded() -> bool:
        return (await record.read()).partitions == partitions

    await eventually(is_recorded)
    killed.kill()
    if failing is not None:
        await fail_over(failing, layout_key(scene.queue))
    await asyncio.sleep(SECONDS)
    command = cli.start("partitions", "set", str(partitions))
    if failing is not None:
        await fail_over(failing, Keys.of(f"{scene.queue}:1").stream)
    if not FULL:
        # Workers that are killed every 0.7 s seldom live long enough to reclaim the entries of others.
        killing.cancel()
    await eventually(lambda: command.poll() is not None, within=60 if not FULL else 300)
    assert command.returncode == 0, command.communicate()


async def orders_in(redis: Redis, layout: Layout) -> dict[str, list[str]]:
    """The orders of the dead letters of each queue."""
    found = {}
    for queue in {*layout.queues, layout.queue, *(f"{layout.queue}:{number}" for number in range(6))}:
        entries = await redis.xrange(Keys.of(queue).dead)
        found[queue] = [fields[b"order_id"].decode() for _, fields in entries]
    return found


async def test_no_order_is_lost_while_the_partitions_change_under_load(
    scene: Scene, cli: Cli, workers: Workers, servers_of_queue: tuple[str, ClusterSet | None]
) -> None:
    case, cluster = servers_of_queue
    failing = cluster if case == "failover" else None
    # A failover loses orders that are only in memory.
    durability = Durability.MEMORY if failing is None else Durability.REPLICATED
    load, draw = Load(scene, durability, seed=1), random.Random(2)
    running = [workers.start(processes=2) for _ in range(2 if FULL else 1)]
    enqueueing, begun = asyncio.create_task(load.run()), time.monotonic()
    await scene.stored_at_least(RATE // 4)

    for partitions in (6, 2):
        killing = asyncio.create_task(kill_workers(running, workers, draw))
        await change(cli, scene, partitions, failing, killing)
        await asyncio.sleep(SECONDS)
        killing.cancel()

    announced = sum((version - EPOCH) // timedelta(hours=1) for version in load.versions.values())
    sys.stdout.write(
        f"{len(load.versions):,} orders in {announced:,} versions, {len(load.broken):,} without a document,"
        f" {time.monotonic() - begun:.0f} s of load\n"
    )
    load.stopping.set()
    await enqueueing
    layout = await LayoutRecord(scene.redis, scene.queue).read()
    assert (layout.partitions, layout.former) == (2, ())

    async with connected(scene.dsn) as sql:

        async def stored() -> dict[str, datetime]:
            return {row["order_id"]: row["version"] for row in await sql.fetch("SELECT order_id, version FROM orders")}

        async def is_finished() -> bool:
            dead = [order_id for orders in (await orders_in(scene.redis, layout)).values() for order_id in orders]
            return await stored() == load.versions and {*dead} == load.broken

        try:
            await eventually(is_finished, within=240 if FULL else 40)
        except AssertionError:
            rows = await stored()
            dead = await orders_in(scene.redis, layout)
            missing = {each for each in load.versions if rows.get(each) != load.versions[each]}
            raise AssertionError(
                f"{len(missing)} of {len(load.versions)}: {sorted(missing)[:9]}, dead: {dead}"
            ) from None
    for queue, orders in (await orders_in(scene.redis, layout)).items():
        assert {layout.queue_of_order(order_id) for order_id in orders} <= {queue}
