"""A slow order stays with its worker while that lives, however eager others are, on each kind of server."""

import pytest
from integration.scene import Scene, assert_right, ids
from integration.scenes import on_each_redis
from support import eventually

pytestmark = on_each_redis


# With free slots, it would look for abandoned orders and might mistake its own for them. Without, it only renews.
@pytest.mark.parametrize("concurrency", [3, 10])
async def test_an_order_that_takes_ten_leases_is_fetched_once(scene: Scene, concurrency: int) -> None:
    scene.api.behave(latency="10.5")
    order_ids = ids(3)
    await scene.enqueue(*order_ids)

    lease = {"claim_idle": 1, "heartbeat_ttl": 3.0}
    async with scene.worker("slow", concurrency=concurrency, **lease) as slow:
        await eventually(lambda: scene.api.stats().requests == len(order_ids))
        async with scene.worker("eager", **lease) as eager, scene.worker("eager too", **lease) as eager_too:
            await scene.finished(within=30)

            for worker in (slow, eager, eager_too):
                assert worker.metric("ingest_redeliveries_total", reason="idle") == 0
                assert worker.metric("ingest_redeliveries_total", reason="dead_consumer") == 0
    assert scene.api.stats().by_id == dict.fromkeys(order_ids, 1)
    assert_right(await scene.rows(), order_ids)
