"""Workers count documents whose lines do not add up, and values that were left out."""

import json

import pytest

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument
from ingest.mapping.load import compile_mapping
from ingest.sources.documents import open_decode
from ingest.telemetry.metrics import TOTAL_DIFFERENCES, VALUES_OMITTED, WorkerMetrics, worker_shared_metrics

MAPPING = """
[order]
id = "id"
status = { value = "placed" }
placed_at = { value = 2024-05-06T07:08:09Z }
currency = { value = "EUR" }
customer_id = "customer"
total = "total"

[[lines]]
from = "items"
sku = "sku"
quantity = { value = 1 }
unit_price = "price"
description = "name"

[attributes]
paid = { path = "paid", type = "boolean" }
"""


def document(**values: object) -> bytes:
    items = [{"sku": "a", "price": "1.00", "name": "Cup"}, {"sku": "b", "price": "2.00", "name": "Pan"}]
    return json.dumps({"id": "a", "total": "3.00", "items": items, "customer": 7, "paid": True} | values).encode()


async def test_differences_and_omitted_values_are_counted() -> None:
    shared = worker_shared_metrics(1)
    metrics = WorkerMetrics.on(shared, 0)
    request = FetchRequest("a")
    async with open_decode(compile_mapping(MAPPING), None, metrics) as decode:
        await decode.decode(document(), request)
        await decode.decode(document(total="4.00"), request)
        await decode.decode(document(total="4.00", customer={}, paid="perhaps"), request)
        # Documents that are only checked are not counted, and neither are rejected ones.
        await decode.check(document(total="4.00", paid="perhaps"), request)
        with pytest.raises(InvalidDocument):
            await decode.decode(document(total="4.00", id="b"), request)

    assert shared.total(TOTAL_DIFFERENCES) == [2]
    assert shared.total(VALUES_OMITTED) == [2]


async def test_an_order_is_stored_without_the_values_that_do_not_fit() -> None:
    shared = worker_shared_metrics(1)
    metrics = WorkerMetrics.on(shared, 0)
    items = [{"sku": "a", "price": "3.00", "name": {"de": "Tasse"}}]
    async with open_decode(compile_mapping(MAPPING), None, metrics) as decode:
        (order,) = await decode.decode(document(customer={}, paid="perhaps", items=items), FetchRequest("a"))

    assert (order.customer_id, order.attributes, len(order.lines)) == (None, {}, 1)
    assert shared.total(VALUES_OMITTED) == [3]
