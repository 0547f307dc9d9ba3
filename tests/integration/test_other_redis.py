"""Workers and producers continue when Redis changes its role, or another program responds at its port."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from failover import Pair
from foreign import echo, http, ones, words
from integration.scene import Scene, ids
from integration.watching import all_stored_at_the_first_attempt, is_open
from listener import Serve, listening
from servers.kinds import KINDS, Kind

from ingest.queue.produce.producer import Producer

SECONDS = 25.0


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    kind: Kind = request.param
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        Pair.open(kind.server(Path(folder) / "one"), kind.server(Path(folder) / "other")) as pair,
    ):
        yield pair


@pytest.fixture
async def scene(pair: Pair, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(pair.url, dsn, queue_name) as scene:
        yield scene


class Announcing:
    """A producer that announces an order every few milliseconds until it is stopped."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stop = asyncio.Event()
        self.announced: list[str] = []

    async def run(self) -> None:
        async with Producer.connect(self._scene.redis_url, self._scene.queue) as producer:
            while not self._stop.is_set():
                order_id = f"order-{len(self.announced)}"
                await producer.enqueue([order_id])
                self.announced.append(order_id)
                await asyncio.sleep(0.005)

    def stop(self) -> None:
        self._stop.set()

    async def announces_more(self) -> None:
        """Wait until a hundred more are accepted."""
        enough = len(self.announced) + 100
        async with asyncio.timeout(SECONDS):
            while len(self.announced) < enough:  # noqa: ASYNC110  it is another task that counts
                await asyncio.sleep(0.01)


async def test_after_role_changes_that_move_only_new_connections_workers_and_producers_go_on(
    pair: Pair, scene: Scene
) -> None:
    await pair.attach()
    announcing = Announcing(scene)
    async with scene.worker("a") as a, scene.worker("b") as b, asyncio.TaskGroup() as tasks:
        tasks.create_task(announcing.run())
        await announcing.announces_more()
        for change_roles in (pair.hand_over, pair.promote):
            await change_roles()
            pair.lead()
            await announcing.announces_more()
            await scene.stored_at_least(len(announcing.announced), within=SECONDS)
        # Demoted and promoted again, without a move of clients.
        await pair.hand_over()
        await pair.hand_over()
        await announcing.announces_more()
        announcing.stop()
        async with asyncio.timeout(SECONDS):
            await scene.stored_at_least(len(announcing.announced), within=SECONDS)
        assert [is_open(worker) for worker in (a, b)] == [False, False]
        assert await scene.dead() == []
    assert set(await scene.rows()) == set(announcing.announced)


@pytest.mark.parametrize("answer", [echo, http, ones, words], ids=lambda answer: answer.__name__)
async def test_a_worker_outlives_another_program_at_the_port_of_redis(pair: Pair, scene: Scene, answer: Serve) -> None:
    order_ids = ids(200)
    async with scene.worker(concurrency=10) as worker, listening(answer) as foreign:
        await scene.enqueue(*order_ids[:100])
        await scene.stored_at_least(20)
        pair.proxy.lead_to(foreign)
        await asyncio.to_thread(pair.proxy.cut)
        # Longer than a heartbeat, so that a worker has tried all kinds of commands.
        await asyncio.sleep(2.5)
        assert not worker.task.done()
        pair.lead()
        await asyncio.to_thread(pair.proxy.cut)
        async with Producer.connect(scene.redis_url, scene.queue) as producer:
            await producer.enqueue(order_ids[100:])
        await all_stored_at_the_first_attempt(scene, order_ids)
        assert not is_open(worker)
