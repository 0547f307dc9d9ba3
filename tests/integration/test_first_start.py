"""A fresh worker whose first orders all fail finds those behind them, on every server."""

from collections.abc import AsyncIterator
from itertools import cycle

import pytest
from integration.scene import Scene, ids
from integration.scenes import on_each_redis
from integration.test_probing import FickleApi, fickle

pytestmark = on_each_redis


@pytest.fixture
async def api() -> AsyncIterator[FickleApi]:
    async with fickle() as api:
        yield api


BROKEN, RESET = 500, 0


@pytest.mark.parametrize(
    ("statuses", "hanging"),
    [([BROKEN], 0), ([RESET], 0), ([BROKEN, RESET], 10)],
    ids=["500", "reset", "500, reset, hanging"],
)
async def test_good_orders_behind_those_that_fail_are_stored(
    scene: Scene, api: FickleApi, statuses: list[int], hanging: int
) -> None:
    bad, good = ids(60, "bad"), ids(100, "good")
    fate = dict(zip(bad, cycle(statuses)))
    api.status_of = lambda order_id: fate.get(order_id, 200)
    api.slow = set(bad[::hanging]) if hanging else set()
    await scene.enqueue(*bad, *good)

    async with scene.worker(upstream_url=api.url):
        await scene.stored_at_least(len(good), within=40)

    assert sorted(await scene.rows()) == sorted(good)
