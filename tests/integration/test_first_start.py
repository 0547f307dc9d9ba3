"""A fresh worker whose first orders all fail finds those behind them, on every server."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from integration.scene import Scene, ids
from integration.test_probing import FickleApi, fickle
from servers.kinds import KINDS, Kind


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
async def scene(request: pytest.FixtureRequest, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    kind: Kind = request.param
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        async with Scene.open(server.url, dsn, queue_name) as scene:
            yield scene


@pytest.fixture
async def api() -> AsyncIterator[FickleApi]:
    async with fickle() as api:
        yield api


async def test_good_orders_behind_those_that_fail_are_stored(scene: Scene, api: FickleApi) -> None:
    import time

    bad, good = ids(60, "bad"), ids(100, "good")
    api.status_of = lambda order_id: 500 if order_id.startswith("bad") else 200
    await scene.enqueue(*bad, *good)
    t = time.monotonic()
    async with scene.worker(upstream_url=api.url, concurrency=20, upstream_tries=3):
        await scene.stored_at_least(100, within=40)
    print("TOOK", time.monotonic() - t, sum(api.asked.values()))
