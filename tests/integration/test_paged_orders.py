"""Orders whose lines require separate requests, on real servers, are stored completely or not at all."""

from collections.abc import AsyncIterator
from decimal import Decimal
from itertools import islice

import pytest
from fakes.upstream import delivered
from integration.scene import Scene
from support import eventually

from ingest.domain.errors import PermanentFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.pages import PageRequest
from ingest.domain.orders.order import decode_order
from ingest.lab.upstream import Behaviour
from ingest.lab.upstream.samples import sample_orders
from ingest.sources.from_settings import source_of
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient

# Lines on a page of the simulated API.
PAGE = 25
LONG = {
    order_id: decode_order(body, order_id)
    for order_id, body in islice(((key, body) for key, body in sample_orders().items() if len(body) > 5_000), 30)
}
REQUESTS = sum(1 + -(-len(order.lines) // PAGE) for order in LONG.values())


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name, Behaviour(shape="amazon")) as scene:
        yield scene


async def lines(scene: Scene) -> dict[str, tuple[int, Decimal]]:
    return {order_id: (row["line_count"], row["total"]) for order_id, row in (await scene.rows()).items()}


COMPLETE = {order_id: (len(order.lines), order.total) for order_id, order in LONG.items()}


async def test_orders_are_stored_with_the_lines_of_all_pages(scene: Scene) -> None:
    await scene.enqueue(*LONG)

    async with scene.worker(mapping="amazon") as worker:
        await scene.finished()
        counted = worker.metric("ingest_upstream_request_seconds_count", code="2xx")

    assert await scene.dead() == []
    assert await lines(scene) == COMPLETE
    # Each page is a request, and counted as one.
    assert scene.api.stats().requests == counted == REQUESTS


async def test_an_order_is_complete_or_not_stored_while_requests_fail(scene: Scene) -> None:
    scene.api.behave(error_rate=0.02, reset_rate=0.01)
    await scene.enqueue(*LONG)

    async with scene.worker(mapping="amazon", upstream_tries=1):

        async def stored() -> bool:
            found = await lines(scene)
            assert found.items() <= COMPLETE.items()
            return found == COMPLETE

        await eventually(stored, within=60)
        await scene.finished()

    assert await scene.dead() == []


async def test_no_page_is_requested_of_another_origin(scene: Scene) -> None:
    seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
    settings = scene.settings(mapping="amazon")
    source = source_of(settings, {})
    async with UpstreamClient.open(source.endpoint, source.limits, seconds) as client:
        with pytest.raises(PermanentFault, match=r"leads to another origin, https://evil\.example:443"):
            await delivered(client.fetch_page(FetchRequest("1"), PageRequest("https://evil.example/orders")))

    assert scene.api.stats().requests == 0
