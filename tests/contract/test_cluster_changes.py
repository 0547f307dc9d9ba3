"""A cluster whose nodes fail, come and go. Producers and consumers resume by themselves and lose no replicated entry."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_set import ClusterSet
from cluster_slots import MovingSlot, remove
from consumers import BEFORE, RESUMED_WITHIN, Consumer, read_all, resuming
from redis.exceptions import ConnectionError  # noqa: A004  redis-py's own, which is no OSError
from servers.kinds import KINDS, Kind

from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client
from ingest.queue.redis.topology.cluster import slot_of

QUEUE = "orders"
KEY = Keys.of(QUEUE, "ingest").stream


@pytest.fixture
async def cluster(kind: Kind) -> AsyncIterator[ClusterSet]:
    with TemporaryDirectory(prefix="ingest-") as folder, ClusterSet.open(kind, Path(folder)) as cluster:
        await cluster.become_ready()
        yield cluster


# A frozen node takes longer, and only the client differs.
FAILURES = [*((kind, signal.SIGKILL) for kind in KINDS), (KINDS[0], signal.SIGSTOP)]


@pytest.mark.parametrize(
    ("kind", "failure"), FAILURES, ids=[f"{kind.name}-{failure.name}" for kind, failure in FAILURES]
)
async def test_producers_and_consumers_resume_at_the_promoted_replica_without_a_loss(
    cluster: ClusterSet, failure: signal.Signals
) -> None:
    primary = await cluster.owner(KEY)
    async with resuming(cluster.url(), cluster.replicate):
        os.kill(primary.pid, failure)


async def test_producers_and_consumers_follow_a_slot_to_a_new_node_and_back_when_that_is_removed(
    cluster: ClusterSet,
) -> None:
    async with (
        Consumer.open(cluster.url(), QUEUE, "ingest", "one", 1.0) as consumer,
        Producer.connect(cluster.url(), QUEUE) as producer,
    ):
        await consumer.ensure_group()
        await producer.enqueue(BEFORE)
        reading = asyncio.create_task(read_all(consumer, len(BEFORE) + 2))

        new = await cluster.add()
        moving = await MovingSlot.begin(cluster, slot_of(KEY), new)
        enqueued = asyncio.create_task(producer.enqueue(["while it moves"]))
        await asyncio.sleep(0)
        await moving.finish()
        async with asyncio.timeout(RESUMED_WITHIN):
            await enqueued
            await remove(cluster, new)
            await producer.enqueue(["after"])
            seen = await reading

    assert seen == {"while it moves", "after", *BEFORE}


async def test_keys_of_other_nodes_are_served_while_a_primary_is_down(cluster: ClusterSet) -> None:
    down = await cluster.owner(KEY)
    keys = [f"{{{number}}}" for number in range(30)]
    others = [key for key in keys if await cluster.owner(key) is not down]
    async with control_client(cluster.url()) as client:
        for key in others:
            await client.set(key, key)
        os.kill(down.pid, signal.SIGKILL)

        async with client.pipeline(transaction=False) as pipe:
            for key in (KEY, *others):
                pipe.get(key)
            failed, *found = await pipe.execute(raise_on_error=False)

    assert isinstance(failed, ConnectionError)
    assert found == [key.encode() for key in others]
