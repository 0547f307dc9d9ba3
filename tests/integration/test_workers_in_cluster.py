"""Workers on the partitions of a cluster."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_set import ClusterSet
from integration.scene import Scene, assert_right, ids
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from servers.kinds import KINDS, Kind
from support import eventually

from ingest.domain.partitions import Layout
from ingest.lab.upstream import Behaviour
from ingest.queue.layout.keys import Keys

PARTITIONS = 6


async def enqueue(scene: Scene, order_ids: Sequence[str]) -> None:
    layout = Layout(scene.queue, PARTITIONS)
    async with scene.redis.pipeline(transaction=False) as pipe:
        for order_id in order_ids:
            pipe.xadd(Keys.of(layout.queue_of_order(order_id)).stream, {"order_id": order_id})
        await pipe.execute()


async def is_finished(scene: Scene) -> bool:
    with suppress(RedisError, RedisConnectionError, OSError):
        async with scene.redis.pipeline(transaction=False) as pipe:
            for queue in Layout(scene.queue, PARTITIONS).queues:
                keys = Keys.of(queue)
                pipe.xlen(keys.stream).xlen(keys.express).zcard(keys.retry).xlen(keys.dead)
            return not any(await pipe.execute())
    return False


async def test_other_partitions_are_processed_while_a_node_is_down(dsn: str, queue_name: str) -> None:
    order_ids, further = ids(200), ids(200, "further")
    options = {"appendonly": "yes", "cluster-require-full-coverage": "no"}
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        ClusterSet.open(KINDS[0], Path(folder), replicas=0, **options) as cluster,
    ):
        await cluster.become_ready()
        layout = Layout(queue_name, PARTITIONS)
        slow = Behaviour(any_id=True, latency="0.1-0.2")
        async with Scene.open(cluster.url(), dsn, queue_name, slow) as scene, scene.worker(partitions=PARTITIONS):
            await enqueue(scene, order_ids)
            await scene.stored_at_least(20)
            node = await cluster.owner(Keys.of(f"{queue_name}:0").stream)
            owners = {queue: await cluster.owner(Keys.of(queue).stream) for queue in layout.queues}

            node.kill()
            elsewhere = [each for each in further if owners[layout.queue_of_order(each)] is not node]
            await enqueue(scene, elsewhere)
            await eventually(lambda: are_stored(scene, elsewhere))
            await cluster.restart(node)

            await eventually(lambda: is_finished(scene), within=60)
            assert_right(await scene.rows(), [*order_ids, *elsewhere])


async def are_stored(scene: Scene, order_ids: Sequence[str]) -> bool:
    return set(order_ids) <= set(await scene.rows())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_workers_store_every_order_although_a_primary_and_a_worker_are_killed(
    kind: Kind, dsn: str, queue_name: str
) -> None:
    order_ids = ids(300)
    with TemporaryDirectory(prefix="ingest-") as folder, ClusterSet.open(kind, Path(folder)) as cluster:
        await cluster.become_ready()
        slow = Behaviour(any_id=True, latency="0.1-0.2")
        async with Scene.open(cluster.url(), dsn, queue_name, slow) as scene, AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(scene.worker(name, partitions=PARTITIONS)) for name in ("a", "b")
            ]
            await enqueue(scene, order_ids)
            await scene.stored_at_least(20)
            await cluster.replicate()

            (await cluster.owner(Keys.of(f"{queue_name}:0").stream)).kill()
            await workers[0].die()

            await eventually(lambda: is_finished(scene), within=60)
            assert_right(await scene.rows(), order_ids)
