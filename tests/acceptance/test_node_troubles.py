"""A node of a cluster that is slow, denies access, moves a slot or is gone delays the orders of its own partitions only."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from acceptance.commands import Workers
from acceptance.node_troubles import TROUBLES, add_user
from cluster_nodes import ClusterServer
from cluster_set import ClusterSet
from redis.crc import key_slot
from servers.kinds import KINDS
from support import Cli, connected, eventually

from ingest.domain.partitions import Layout, partition_of
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

PARTITIONS = 6
# Seconds within which the orders of other nodes are stored, from the beginning of a trouble.
WITHIN = 10.0
COUNT = 120


class Scene:
    """A cluster with a queue, of which one node gets into trouble."""

    def __init__(self, cluster: ClusterSet, url: str, queue: str, api: SimulatedApi, cli: Cli) -> None:
        self.cluster = cluster
        self.url = url
        self.queue = queue
        self.api = api
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

    async def owners(self) -> list[ClusterServer]:
        """The node of each partition."""
        return [await self.cluster.owner(Keys.of(queue).stream) for queue in self.layout.queues]

    async def stored(self, orders: list[str], within: float) -> None:
        async def are_stored() -> bool:
            async with connected(self.dsn) as sql:
                rows = await sql.fetch("SELECT order_id FROM orders WHERE order_id = ANY ($1::text[])", orders)
                return len(rows) == len(orders)

        await eventually(are_stored, within=within)


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


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_node_in_trouble_delays_its_own_orders_only(scene: Scene, trouble: str) -> None:
    owners = await scene.owners()
    record = await scene.cluster.owner(Keys.of(scene.queue).stream)
    number, node = next((number, node) for number, node in enumerate(owners) if node is not record)
    slot = key_slot(Keys.of(scene.layout.queues[number]).stream.encode())

    def orders(prefix: str, *, of_node: bool) -> list[str]:
        every = [f"{prefix}-{number}" for number in range(COUNT)]
        return [order for order in every if (owners[partition_of(order, PARTITIONS)] is node) is of_node]

    worker = scene.workers.start(processes=1, concurrency=20)
    async with Producer.connect(scene.url, scene.queue, partitions=PARTITIONS) as producer:
        before = orders("before", of_node=True) + orders("before", of_node=False)
        await producer.enqueue(before)
        await scene.stored(before, within=60)
        waiting = orders("waiting", of_node=True)
        await producer.enqueue(waiting)

        async with TROUBLES[trouble](scene.cluster, node, slot):
            for prefix in ("first", "second"):
                others = orders(prefix, of_node=False)
                await producer.enqueue(others)
                await scene.stored(others, within=WITHIN)
            late = scene.workers.start(processes=1, concurrency=20)
            await late.says("process_started")
            assert await worker.stop() == 0
            others = orders("third", of_node=False)
            await producer.enqueue(others)
            await scene.stored(others, within=60)
        await scene.stored(waiting, within=60)

    assert worker.events("partition_slow" if trouble == "slow" else "partition_unavailable")
