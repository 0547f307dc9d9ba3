"""Workers on an API with a list endpoint: the same rows with a fraction of the requests, and one order spoils no other."""

from collections.abc import Mapping
from typing import Any

import asyncpg
from integration.scene import Scene, assert_right, ids, unguarded

ORDERS = ids(200)


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


def content(rows: Mapping[str, asyncpg.Record]) -> dict[str, dict[str, Any]]:
    """All columns except times."""
    moments = {"enqueued_at", "ingested_at"}
    return {
        order_id: {name: value for name, value in row.items() if name not in moments}
        for order_id, row in unguarded(rows).items()
    }
