"""A worker finds the capacity of a real API, and does not exceed it."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import Scene, assert_right, ids
from integration.watching import until

from ingest.lab.upstream import Behaviour


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    behaviour = Behaviour(any_id=True, latency="0.1", capacity=40)
    async with Scene.open(redis_url, dsn, queue_name, behaviour) as scene:
        yield scene


async def test_a_worker_begins_with_a_few_finds_the_capacity_and_follows_it(scene: Scene) -> None:
    order_ids = ids(6_000)
    await scene.enqueue(*order_ids)

    async with scene.worker(concurrency=400, upstream_adaptive="on", heartbeat_ttl=6.0) as worker:
        assert worker.metric("ingest_concurrency_limit") == 20
        await until(lambda: worker.metric("ingest_concurrency_limit") > 35)
        found = scene.api.stats().peak_concurrency
        scene.api.behave(capacity=200)
        await until(lambda: worker.metric("ingest_concurrency_limit") > 100, within=30)
        scene.api.behave(capacity=0, latency="0")
        await scene.finished(60)

    assert found < 150, "doubled until requests took longer"
    assert_right(await scene.rows(), order_ids)
    assert scene.api.stats().by_status == {"200": 6_000}
