"""A node of a cluster that is slow, denies access, moves a slot or is gone delays the orders of its own partitions only."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.commands import Workers
from acceptance.node_troubles import TROUBLES, add_user
from cluster_nodes import ClusterServer
from cluster_set import ClusterSet
from redis.crc import key_slot
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest.domain.partitions import Layout, partition_of
from ingest.lab.servers.server import free_port
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

# Each command of a slow node waits for it, beside other tests.
pytestmark = pytest.mark.timeout(600)

PARTITIONS = 6
COUNT = 30
ROUNDS = 10
# Seconds that a round would at least take longer with one step that waits for the node in trouble.
SHORTEST_WAIT = 1.0


class Scene:
    """A cluster with a queue, of which one node gets into trouble."""

    def __init__(self, cluster: ClusterSet, url: str, queue: str, api: SimulatedApi, cli: Cli) -> None:
        self.cluster = cluster
        self.url = url
        self.queue = queue
        self.api = api
        self.cli = cli
        self.owners: list[ClusterServer] = []
        self.dsn = cli.env["INGEST_POSTGRES_DSN"]
        self.layout = Layout(queue, PARTITIONS)
        self.workers = Workers(
            cli,
            {
                "INGEST_REDIS_URL": url,
                "INGEST_UPSTREAM_URL": api.url_template,
                "INGEST_PARTITIONS": str(PARTITIONS),
                "INGEST_STREAM": queue,
            },
        )

    async def find_victim(self) -> tuple[int, ClusterServer]:
        """A partition and its node, which is not the node of the record of partitions."""
        self.owners = [await self.cluster.owner(Keys.of(queue).stream) for queue in self.layout.queues]
        record = await self.cluster.owner(Keys.of(self.queue).stream)
        return next((number, node) for number, node in enumerate(self.owners) if node is not record)

    def slot_of(self, partition: int) -> int:
        return key_slot(Keys.of(self.layout.queues[partition]).stream.encode())

    def producer(self) -> AbstractAsyncContextManager[Producer]:
        return Producer.connect(self.url, self.queue, partitions=PARTITIONS)

    def orders(self, prefix: str, node: ClusterServer, *, are_own: bool) -> list[str]:
        """Orders in the partitions of a node, or of the others."""
        every = [f"{prefix}-{number}" for number in range(COUNT)]
        return [order for order in every if (self.owners[partition_of(order, PARTITIONS)] is node) is are_own]

    async def stored(self, orders: list[str]) -> None:
        async def are_stored() -> bool:
            async with connected(self.dsn) as sql:
                rows = await sql.fetch("SELECT order_id FROM orders WHERE order_id = ANY ($1::text[])", orders)
                return len(rows) == len(orders)

        await eventually(are_stored, within=60)


@pytest.fixture
async def scene(cli: Cli, tmp_path: Path, queue_name: str) -> AsyncIterator[Scene]:
    options = {"cluster_require_full_coverage": "no", "cluster_node_timeout": "60000", "appendonly": "yes"}
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0, **options) as cluster:
        await cluster.become_ready()
        url = await add_user(cluster)
        async with control_client(url) as client, SimulatedApi(Behaviour(any_id=True), seed=1) as api:
            await LayoutRecord(client, queue_name, PARTITIONS).read()
            scene = Scene(cluster, url, queue_name, api, cli)
            yield scene
            for command in scene.workers.started:
                command.close()


@pytest.mark.long
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_node_in_trouble_delays_its_own_orders_only(scene: Scene, trouble: str) -> None:
    number, node = await scene.find_victim()
    worker = scene.workers.start(processes=1, concurrency=20)
    async with scene.producer() as producer:

        async def rounds(name: str) -> float:
            """Wait for some orders of the other nodes again and again, and return how many seconds that takes."""
            began_at = time.monotonic()
            for each in range(ROUNDS):
                others = scene.orders(f"{name}-{each}", node, are_own=False)
                await producer.enqueue(others)
                await scene.stored(others)
            return time.monotonic() - began_at

        before = scene.orders("before", node, are_own=True)
        await producer.enqueue(before)
        await scene.stored(before)
        usual = await rounds("usual")
        waiting = scene.orders("waiting", node, are_own=True)
        await producer.enqueue(waiting)

        async with TROUBLES[trouble](scene.cluster, node, scene.slot_of(number)):
            during = await rounds("during")
            late = scene.workers.start(processes=1, concurrency=20)
            await late.says("process_started")
            assert await worker.stop() == 0
            others = scene.orders("late", node, are_own=False)
            await producer.enqueue(others)
            await scene.stored(others)
        await scene.stored(waiting)

    # A step that waited for the node in trouble would take at least a second on average, in each round.
    assert during < usual + ROUNDS * SHORTEST_WAIT


@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [("slow", "slow"), ("denied", "denied"), ("open slot", "resharding"), ("killed", "unavailable")],
)
async def test_the_log_a_metric_status_and_doctor_name_the_server_and_its_trouble(
    scene: Scene, trouble: str, kind: str
) -> None:
    number, node = await scene.find_victim()
    queue, server, port = scene.layout.queues[number], f"127.0.0.1:{node.port}", free_port()
    worker = scene.workers.start(processes=1, concurrency=20, metrics_port=port)
    await worker.says("process_started")

    def is_named(condition: dict[str, Any]) -> bool:
        start = f"{kind}, partition {queue}: "
        return any(
            each["server"] == f"redis {server}" and each["text"].startswith(start) for each in condition["reasons"]
        )

    async def is_shown_by_status() -> bool:
        done = await asyncio.to_thread(scene.cli.run, "status", "--json", env=scene.workers.env)
        return is_named(json.loads(done.stdout)["condition"])

    async def is_shown_by_doctor() -> bool:
        done = await asyncio.to_thread(scene.cli.run, "doctor", "--json", env=scene.workers.env)
        findings = [each["what"] for each in json.loads(done.stdout)["findings"]]
        return any(what.startswith(f"the partition {queue} on {server} is {kind}") for what in findings)

    async def is_shown_by_top() -> bool:
        done = await asyncio.to_thread(scene.cli.run, "top", "--once", "--json", env=scene.workers.env)
        [source] = json.loads(done.stdout)["sources"]
        return is_named(source["condition"])

    async def is_exported() -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            page = await response.text()
        labels = f'kind="{kind}",node="{server}",partition="{number}",source=""'
        return f"ingest_partition_trouble{{{labels}}} 1.0" in page

    async with scene.producer() as producer:
        async with TROUBLES[trouble](scene.cluster, node, scene.slot_of(number)):
            await producer.enqueue(scene.orders("others", node, are_own=False))
            event = "partition_slow" if kind == "slow" else "partition_unavailable"
            logged = await worker.says(event, queue=queue, server=server)
            assert logged.get("kind", kind) == kind, str(logged)
            for is_shown in (is_exported, is_shown_by_status, is_shown_by_doctor, is_shown_by_top):
                await eventually(is_shown, within=60)
        await worker.says("partition_available", queue=queue)
