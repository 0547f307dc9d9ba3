"""Rows of `orders` that another program has changed are shown, and hide no others."""

from datetime import UTC, datetime

import msgspec
import pytest
from integration.scene import GROUP, Scene, document
from support import connected

from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.operations.backends import Backends
from ingest.operations.stored_orders.order_json import shown as shown_order
from ingest.operations.stored_orders.order_places import locate
from ingest.store.connections.pool import Pool
from ingest.store.orders.order_reading import OrderReader
from ingest.store.orders.rows import Rows

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [("infinity", LAST), ("12026-01-01 00:00:00+00", LAST), ("-infinity", FIRST), ("0044-03-15 00:00:00+00 BC", FIRST)],
)
async def test_a_time_that_python_has_no_value_for_is_shown_as_the_nearest_one(
    redis_url: str, dsn: str, queue_name: str, stored: str, shown: datetime
) -> None:
    async with Scene.open(redis_url, dsn, queue_name) as scene, scene.worker():
        await scene.add(order_id="X", document=document("X"))
        await scene.finished()
    async with connected(dsn) as sql:
        await sql.execute(f"UPDATE orders SET placed_at = '{stored}', version = '{stored}'")

    [state] = await locate([Backends(redis_url, dsn, queue_name, GROUP)], ["X"])
    async with Pool.open(dsn, size=1) as pool:
        [listed] = await OrderReader(pool).page(OrderFilter(), OrderPosition(), 10)

    async with Rows.open(dsn) as rows:
        compared = (await rows.content(["X"]))["X"]

    assert compared.placed_at == shown
    for found in (msgspec.structs.asdict(shown_order(state)), listed):
        assert (found["order"]["placed_at"], found["row"]["version"]) == (shown, shown)
        assert found["order"]["updated_at"] is None
        msgspec.json.encode(found)
