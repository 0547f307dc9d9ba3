"""A worker stores orders whose lines do not add up, marks them, and counts them."""

import json
from typing import Any

from integration.scene import Scene

from ingest.domain.deliveries.announcement import Announcement
from ingest.queue.produce.producer import Producer


def document(order_id: int, **changes: Any) -> bytes:
    line = {"id": 1, "name": "Cup", "sku": "CUP", "quantity": 3, "total": "10.00", "price": 3.3333333333333335}
    order = {
        "id": order_id,
        "status": "processing",
        "currency": "EUR",
        "date_created_gmt": "2026-03-01T10:00:00",
        "date_modified_gmt": "2026-03-01T10:00:05",
        "total": "10.00",
        "total_tax": "0.00",
        "customer_id": 3,
        "line_items": [line],
    }
    return json.dumps(order | changes).encode()


async def test_a_difference_and_a_value_that_was_left_out_are_counted(scene: Scene) -> None:
    documents = {
        "1": document(1),
        "2": document(2, total="12.50"),
        "3": document(3, total="12.50", customer_id={"no": "customer"}, refunds="none"),
        "4": document(4, total=None),
    }
    pushed = [Announcement(order_id, document=each) for order_id, each in documents.items()]
    await Producer(scene.redis, scene.queue).enqueue(pushed)

    async with scene.worker(mapping="woocommerce") as worker:
        await scene.finished()

        assert worker.metric("ingest_total_differences_total") == 2
        assert worker.metric("ingest_values_omitted_total") == 2
    rows = await scene.rows()
    assert {order_id: str(row["total"]) for order_id, row in rows.items()} == {
        "1": "10.000000",
        "2": "12.500000",
        "3": "12.500000",
        "4": "10.000000",
    }
    assert {order_id: json.loads(row["attributes"]).get("total_difference") for order_id, row in rows.items()} == {
        "1": None,
        "2": "2.50",
        "3": "2.50",
        "4": None,
    }
