"""The number of a worker process's connections to Redis, independent of its load."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from integration.scene import Scene, ids
from servers.kinds import KINDS

# One for blocking reads, one for acks, one for the quota and pauses of the fleet, and four for the rest.
MOST = 7


@pytest.fixture
async def scene(dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    """A scene with a dedicated Redis."""
    with TemporaryDirectory(prefix="ingest-") as folder, KINDS[0].server(Path(folder) / "server") as server:
        async with Scene.open(server.url, dsn, queue_name) as scene:
            yield scene


async def test_a_worker_that_has_hundreds_of_outcomes_to_write_at_once_keeps_to_a_few_connections(scene: Scene) -> None:
    scene.api.behave(not_found_rate=0.5)
    await scene.enqueue(*ids(3000))
    others = len(await scene.redis.client_list())
    most = 0

    async with scene.worker(concurrency=300) as worker:
        while await scene.stored() < 1000:
            most = max(most, len(await scene.redis.client_list()) - others)
            await asyncio.sleep(0.01)
        await worker.stop(hurry=True)

    assert 3 <= most <= MOST
