"""Workers on an API with a list endpoint: the same rows with a fraction of the requests, and one order spoils no other."""

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import asyncpg
import pytest
from integration.scene import Scene, assert_right, document, ids, unguarded
from scripted_http import http, scripted_server
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
    single = await scene.rows()
    await scene.sql("TRUNCATE orders")
    scene.api.reset_stats()

    await scene.enqueue(*ORDERS)
    async with scene.worker(**bulk(scene)):
        await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ORDERS)
    assert content(rows) == content(single)
    stats = scene.api.stats()
    assert stats.orders == len(ORDERS)
    assert stats.requests <= 20


async def test_at_a_stop_orders_that_wait_for_a_pause_of_the_api_are_released_at_once(scene: Scene) -> None:
    async with scene.worker(**bulk(scene), shutdown_grace=25) as worker:
        scene.api.behave(latency="0.5", rate_limit=0.01, rate_burst=2, retry_after=60)
        # Two small requests take the places of two large ones, so that orders wait.
        for count, order_id in enumerate(ORDERS[:2], 1):
            await scene.enqueue(order_id)
            await eventually(lambda count=count: _is(scene.api.stats().requests == count))
        await scene.enqueue(*ORDERS[2:])
        await eventually(lambda: _is("429" in scene.api.stats().by_status))
        started = time.monotonic()

        await worker.stop()

        assert time.monotonic() - started < 15
    state = await scene.state()
    assert await scene.stored() + (state.depth or 0) + state.pending + state.retries == len(ORDERS)
    assert await scene.dead() == []
    entries = await scene.redis.xrange(scene.keys.stream)
    assert {fields.get(b"attempt", b"1") for _, fields in entries} == {b"1"}


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


@pytest.mark.parametrize("listed", [10, 1_000])
async def test_an_api_that_ignores_which_orders_are_requested_is_an_outage(scene: Scene, listed: int) -> None:
    documents = b"[%s]" % b",".join([document(order_id) for order_id in ids(listed, "other")])
    await scene.enqueue(*ORDERS)

    async with scripted_server() as api:
        api.answer(http(200, documents))
        url = f"{api.url}/orders?status={{order_ids}}"
        async with scene.worker(upstream_bulk_url=url, upstream_bulk_size=50, max_attempts=1) as worker:
            await eventually(lambda: _is(worker.metric("ingest_circuit_open") == 1))
            asked = len(api.received)
            await eventually(lambda: _is(len(api.received) >= asked + 4))

            assert await scene.dead() == []
    async with scene.worker(**bulk(scene)):
        await scene.finished()

    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, ORDERS)
    assert {row["attempts"] for row in rows.values()} == {1}


async def test_an_order_announced_twice_at_once_is_stored_once(scene: Scene) -> None:
    scene.api.put_order("twice", document("twice"))
    await scene.enqueue("twice", "twice", "other", "twice")

    async with scene.worker(**bulk(scene)):
        await scene.finished()

    assert sorted(await scene.rows()) == ["other", "twice"]
    assert await scene.dead() == []


def content(rows: Mapping[str, asyncpg.Record]) -> dict[str, dict[str, Any]]:
    """All columns but those that say when."""
    moments = {"enqueued_at", "ingested_at"}
    return {
        order_id: {name: value for name, value in row.items() if name not in moments}
        for order_id, row in unguarded(rows).items()
    }


async def _is(value: object) -> bool:
    return bool(value)
