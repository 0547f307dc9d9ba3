"""A worker with a function of the user stores, splits, skips or dead-letters orders by its result."""

import pytest
from integration.scene import Scene, document

HOSTILE = "own_code:hostile"


@pytest.mark.parametrize("processes", [0, 1])
async def test_what_the_function_returns_is_stored(scene: Scene, processes: int) -> None:
    await scene.enqueue("order-1", "split-1", "skip-1", "raise-1", "wrong-1")
    await scene.add(order_id="order-2", document=document("order-2"))

    async with scene.worker(transform=HOSTILE, transform_processes=processes) as worker:
        await scene.finished()

        assert set(await scene.rows()) == {"order-1", "order-2", "split-1", "split-1-2"}
        assert worker.metric("ingest_orders_total", outcome="skipped") == 1
        assert worker.metric("ingest_orders_total", outcome="stored") == 4
        assert worker.metric("ingest_transform_seconds_count") == 6
    dead = {letter["order_id"]: (letter["reason"], letter["error"]) for letter in await scene.dead()}
    assert set(dead) == {"raise-1", "wrong-1"}
    assert dead["wrong-1"] == (
        "transform_failed",
        "returned an order that is not valid: Expected `str`, got `int` - at `$.status`",
    )
    assert dead["raise-1"][0] == "transform_failed"
    assert dead["raise-1"][1].startswith("`ValueError` at own_code:")


@pytest.mark.parametrize(
    ("function", "order_id", "error"),
    [("hostile", "panic-1", "`Panic` at own_code:"), ("cancels_itself", "cancel-1", "`CancelledError` at own_code:")],
)
async def test_an_order_whose_call_ends_in_no_usual_way_is_dead_lettered_at_once(
    scene: Scene, caplog: pytest.LogCaptureFixture, function: str, order_id: str, error: str
) -> None:
    await scene.enqueue("order-1", order_id, "order-2")

    async with scene.worker(transform=f"own_code:{function}"):
        await scene.finished()

    assert set(await scene.rows()) == {"order-1", "order-2"}
    [letter] = await scene.dead()
    assert letter["reason"] == "transform_failed"
    assert letter["error"].startswith(error)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_becomes_of_each_order_is_told(scene: Scene) -> None:
    await scene.enqueue("order-1", "split-1", "skip-1", "raise-1")

    async with scene.worker(transform=HOSTILE, results="on"):
        await scene.finished()

    told = [
        {name.decode(): value.decode() for name, value in fields.items()}
        for _, fields in await scene.redis.xrange(scene.keys.results)
    ]
    assert sorted(told, key=str) == sorted(
        [
            {"order_id": "order-1", "outcome": "inserted"},
            {"order_id": "split-1", "outcome": "inserted"},
            {"order_id": "split-1-2", "outcome": "inserted", "announced_as": "split-1"},
            {"order_id": "skip-1", "outcome": "skipped"},
            {"order_id": "raise-1", "outcome": "dead_lettered", "reason": "transform_failed"},
        ],
        key=str,
    )
