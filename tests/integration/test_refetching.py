"""Stored orders of a query are fetched again, after a preview of the fields that would change."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from integration.scene import Scene, document

from ingest.domain.orders.order_filter import OrderFilter
from ingest.lab.upstream import Behaviour
from ingest.operations.backends import Backends
from ingest.operations.refetch import refetch_orders
from ingest.operations.refetch_preview import preview_refetch
from ingest.services.refetch_sample import fetching_orders

WRONG = [f"wrong-{number:03}" for number in range(30)]


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name, Behaviour()) as scene:
        yield scene


async def test_what_was_stored_wrongly_within_an_hour_is_previewed_and_stored_again(scene: Scene) -> None:
    for order_id in ("right", *WRONG):
        scene.api.put_order(order_id, document(order_id, updated_at="2026-01-02T03:04:05Z"))
    await scene.enqueue("right", *WRONG)
    async with scene.worker():
        await scene.finished()
    # As if another mapping had stored them two hours ago, with a version that keeps every later document out.
    await scene.sql(
        "UPDATE orders SET status = 'wrong', version = '2026-06-01', ingested_at = now() - interval '2 hours' WHERE order_id LIKE 'wrong-%'"
    )
    scene.api.delete_order("wrong-003")
    now = datetime.now(UTC)
    within = OrderFilter(stored_from=now - timedelta(hours=3), stored_to=now - timedelta(hours=1))
    settings = scene.settings(history=60.0)
    backends = Backends.of(settings)

    async with fetching_orders(settings, os.environ) as fetch:
        preview = await preview_refetch(backends, within, fetch, sample=5)
    count = await refetch_orders(backends, within, "cli:me")
    scene.api.put_order("wrong-003", document("wrong-003"))
    async with scene.worker(history=60.0):
        await scene.finished()

    assert (preview.total, preview.fetched, preview.changed, count) == (30, 5, 4, 30)
    assert preview.fields.by_frequency() == [("status", 4)]
    assert preview.fields.examples["status"][0].after == "placed"
    assert [failure.order_id for failure in preview.failures] == ["wrong-003"]
    assert {row["status"] for row in (await scene.rows()).values()} == {"placed"}
    events = await scene.sql("SELECT event, count(*) FROM order_history GROUP BY event ORDER BY event")
    assert [tuple(row) for row in events] == [("changed", 30), ("refetched", 30)]
