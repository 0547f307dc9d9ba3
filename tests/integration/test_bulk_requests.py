"""Workers on an API with a list endpoint: the same rows with a fraction of the requests, and one order spoils no other."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import Scene, assert_right, document, ids, unguarded
from support import eventually

ORDERS = ids(200)


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


def bulk(scene: Scene, size: int = 50) -> dict[str, object]:
    return {"upstream_bulk_url": scene.api.list_template, "upstream_bulk_size": size, "concurrency": 100}


async def test_the_rows_are_those_of_single_requests_with_a_fraction_of_the_requests(scene: Scene) -> None:
    await scene.enqueue(*ORDERS)
    async with scene.worker():
        await scene.finished()
    single = unguarded(await scene.rows())
    await scene.sql("TRUNCATE orders")
    scene.api.reset_stats()

    await scene.enqueue(*ORDERS)
    async with scene.worker(**bulk(scene)):
        await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ORDERS)
    assert {name: row["lines"] for name, row in unguarded(rows).items()} == {
        n: row["lines"] for n, row in single.items()
    }
    stats = scene.api.stats()
    assert stats.orders == len(ORDERS)
    assert stats.requests <= 20


async def test_orders_that_do_not_exist_or_are_invalid_are_dead_lettered_and_no_others(scene: Scene) -> None:
    scene.api.delete_order("order-7")
    scene.api.put_order("order-33", b'{"id":"order-33","status":7}')
    scene.api.put_order("order-34", b'["no order"]')
    await scene.enqueue(*ORDERS)

    async with scene.worker(**bulk(scene)):
        await scene.finished()

    dead = {entry["order_id"]: entry["reason"] for entry in await scene.dead()}
    assert dead == {"order-7": "not_found", "order-33": "invalid_order", "order-34": "invalid_order"}
    assert_right(await scene.rows(), [order_id for order_id in ORDERS if order_id not in dead])


@pytest.mark.parametrize("status", [400, 404, 403, 500])
async def test_an_order_that_breaks_the_answer_for_others_is_isolated(scene: Scene, status: int) -> None:
    scene.api.behave(breaking_id="order-42", error_status=status)
    await scene.enqueue("first")
    async with scene.worker(**bulk(scene), max_attempts=1) as worker:
        await scene.finished()

        await scene.enqueue(*ORDERS)
        await scene.finished()

    (dead,) = await scene.dead()
    assert dead["order_id"] == "order-42"
    rows = await scene.rows()
    assert_right(rows, ["first", *(order_id for order_id in ORDERS if order_id != "order-42")])
    assert {row["attempts"] for row in rows.values()} == {1}
    assert worker.metric("ingest_circuit_open") == 0
    assert scene.api.stats().requests <= 60


async def test_an_outage_blames_no_order_and_is_not_made_worse_by_dividing_requests(scene: Scene) -> None:
    await scene.enqueue("first")
    async with scene.worker(**bulk(scene), max_attempts=1) as worker:
        await scene.finished()
        scene.api.behave(down="503")
        scene.api.reset_stats()
        await scene.enqueue(*ORDERS)
        await eventually(lambda: _is(worker.metric("ingest_circuit_open") == 1))
        requests = scene.api.stats().requests
        scene.api.behave(down=None)
        await scene.finished()

    assert requests <= 10
    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, ["first", *ORDERS])
    assert {row["attempts"] for row in rows.values()} == {1}


async def test_an_order_announced_twice_at_once_is_stored_once(scene: Scene) -> None:
    scene.api.put_order("twice", document("twice"))
    await scene.enqueue("twice", "twice", "other", "twice")

    async with scene.worker(**bulk(scene)):
        await scene.finished()

    assert sorted(await scene.rows()) == ["other", "twice"]
    assert await scene.dead() == []


async def _is(value: object) -> bool:
    return bool(value)
