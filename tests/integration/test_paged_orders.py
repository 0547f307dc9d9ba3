"""Orders whose lines require separate requests, on real servers, are stored completely or not at all."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes.upstream import delivered
from integration.scene import Scene
from support import eventually

from ingest.domain.errors import PermanentFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.pages import PageRequest
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.sources.from_settings import source_of
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient

# Lines on a page of the simulated shop, and the limit of its requests per second.
PAGE = 25
FAST = 10_000


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
async def shop() -> AsyncIterator[SimulatedShop]:
    """A shop of which every fiftieth order has many lines."""
    async with SimulatedShop("amazon", orders=100, changes={"rate_limit": FAST}, seed=1) as shop:
        yield shop


def settings_of(shop: SimulatedShop) -> dict[str, Any]:
    return {
        "mapping": "amazon",
        "upstream_url": shop.base_url + "/orders/v0/orders/{order_id}",
        "upstream_auth": "header",
        "upstream_auth_header": "x-amz-access-token",
        "upstream_token": shop.site.issue_token("Atza|"),
    }


def items_of(shop: SimulatedShop) -> dict[str, int]:
    """The number of items of all orders by ID."""
    return {shop.kind.order_id(order.number): len(order.lines) for order in shop.state.listed(None)}


async def stored_items(scene: Scene) -> dict[str, int]:
    rows = await scene.rows()
    return {order_id: len(json.loads(row["attributes"])["order_item_ids"]) for order_id, row in rows.items()}


async def test_orders_are_stored_with_the_lines_of_all_pages(scene: Scene, shop: SimulatedShop) -> None:
    complete = items_of(shop)
    await scene.enqueue(*complete)

    async with scene.worker(**settings_of(shop)) as worker:
        await scene.finished()
        counted = worker.metric("ingest_upstream_request_seconds_count", code="2xx")

    assert await scene.dead() == []
    assert max(complete.values()) > PAGE
    assert await stored_items(scene) == complete
    # Each page is a request, and counted as one.
    assert shop.state.counts["requests"] == counted == sum(1 + -(-count // PAGE) for count in complete.values())


async def test_an_order_is_complete_or_not_stored_while_requests_fail(scene: Scene, shop: SimulatedShop) -> None:
    shop.site.behave(rate_limit=50, rate_burst=5)
    complete = items_of(shop)
    await scene.enqueue(*complete)

    async with scene.worker(**settings_of(shop)):

        async def stored() -> bool:
            found = await stored_items(scene)
            assert found.items() <= complete.items()
            return found == complete

        await eventually(stored, within=60)
        await scene.finished()

    assert shop.state.counts["throttled"] > 0
    assert await scene.dead() == []


async def test_no_page_is_requested_of_another_origin(scene: Scene) -> None:
    seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
    source = source_of(scene.settings(mapping="amazon"), {})
    async with UpstreamClient.open(source.endpoint, source.limits, seconds) as client:
        with pytest.raises(PermanentFault, match=r"leads to another origin, https://evil\.example:443"):
            await delivered(client.fetch_page(FetchRequest("1"), PageRequest("https://evil.example/orders")))

    assert scene.api.stats().requests == 0
