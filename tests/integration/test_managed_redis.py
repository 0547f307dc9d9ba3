"""The whole life of orders on a Redis as managed services give it, see `servers.managed`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from integration.scene import Scene, ids
from servers.kinds import KINDS
from servers.managed import Managed
from support import Cli, eventually

from ingest.queue.produce.producer import Producer

pytestmark = pytest.mark.long

MOST_ARGUMENTS = 3_999


ENDPOINTS = [*((kind, "redis") for kind in KINDS), (KINDS[0], "redis+cluster")]


@pytest.fixture(params=ENDPOINTS, ids=[f"{kind.name}-{scheme}" for kind, scheme in ENDPOINTS])
def managed(request: pytest.FixtureRequest) -> Iterator[Managed]:
    kind, scheme = request.param
    with TemporaryDirectory(prefix="ingest-") as folder, Managed.open(kind, Path(folder) / "server", scheme) as running:
        yield running


@pytest.fixture
async def scene(managed: Managed, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(managed.url, dsn, queue_name) as scene:
        yield scene


async def test_orders_are_announced_fetched_retried_reclaimed_dead_lettered_and_replayed(
    managed: Managed, scene: Scene, cli: Cli
) -> None:
    async def said(*arguments: str, stdin: str = "") -> str:
        done = await asyncio.to_thread(
            cli.run,
            *arguments,
            stdin=stdin,
            env={"INGEST_REDIS_URL": managed.url, "INGEST_UPSTREAM_URL": scene.api.url_template},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def dead(count: int) -> bool:
        return len(await scene.dead()) == count

    order_ids = ids(600)
    settings = {"concurrency": 200, "upstream_rate": 10_000, "upstream_concurrency": 1_200, "results": "on"}

    # Announced in every way, and held by a worker that dies.
    await said("enqueue", "-", stdin="\n".join(order_ids[:500]))
    async with Producer.connect(managed.url, scene.queue) as producer:
        await producer.enqueue(order_ids[500:], idempotency_key="k")
        await producer.enqueue(order_ids[500:], idempotency_key="k")
        await producer.enqueue(["express"], express=True)
    scene.api.behave(any_id=True, hang_rate=1.0)
    async with scene.worker("dies", **settings):
        await eventually(lambda: holds(scene, 200))
    # Reclaimed and stored by another.
    scene.api.behave(hang_rate=0.0)
    async with scene.worker("heir", **settings):
        await scene.stored_at_least(601, within=60)
        # Retried.
        scene.api.behave(error_rate=1.0, fail_first=2)
        await said("enqueue", "flaky")
        await scene.stored_at_least(602)
        scene.api.behave(error_rate=0.0, fail_first=0)
        for order_id in ids(250, "nowhere"):
            scene.api.delete_order(order_id)
        # Dead-lettered, replayed, dropped.
        await said("enqueue", *ids(250, "nowhere"))
        await eventually(lambda: dead(250))
        await said("dead", "replay", "--all", "--yes")
        await eventually(lambda: dead(250))
        await said("dead", "drop", "--all", "--yes")
        await eventually(lambda: dead(0))
    assert '"stored": 602' in await said("status", "--json")
    assert '"clean": true' in await said("reconcile", "-", "--json", stdin="\n".join(order_ids))
    assert '"order_id":"flaky"' in await said("order", "show", "flaky", "--json")
    await said("order", "erase", "flaky", "--yes")
    assert await scene.is_finished()
    assert managed.most[0] <= MOST_ARGUMENTS, managed.most


async def holds(scene: Scene, count: int) -> bool:
    return await scene.pending_count() >= count
