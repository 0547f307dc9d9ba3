"""Orders of shops by their lists, and orders by POST."""

from typing import NamedTuple

import aiohttp
import pytest
from integration.scene import Scene

from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.lab.upstream import SimulatedApi
from ingest.lab.upstream.samples import sample_orders

DOCUMENTS = sample_orders()
ORDERS = list(DOCUMENTS)[:60]
ONE, TWO = ORDERS[:2]


class Shop(NamedTuple):
    """The settings of a worker for a shop without those of a kind, and the paths of one and of several orders."""

    settings: dict[str, str]
    url: str
    list_url: str


SHOPS = {
    "shopify-rest": Shop(
        {
            "mapping": "shopify-rest",
            "upstream_auth": "header",
            "upstream_auth_header": "X-Shopify-Access-Token",
            "upstream_token": "shpat_simulated",
        },
        "/admin/api/2026-07/orders/{order_id}.json",
        "/admin/api/2026-07/orders.json?status=any&limit=250&ids={order_ids}",
    ),
    "woocommerce": Shop(
        {
            "mapping": "woocommerce",
            "upstream_auth": "basic",
            "upstream_user": "ck_simulated",
            "upstream_password": "cs_simulated",
        },
        "/wp-json/wc/v3/orders/{order_id}",
        "/wp-json/wc/v3/orders?per_page=100&include={order_ids}",
    ),
}


@pytest.mark.parametrize("kind", SHOPS)
async def test_orders_of_a_shop_are_stored_alike_by_bulk_and_by_single_requests(
    redis_url: str, dsn: str, queue_name: str, kind: str
) -> None:
    known = SHOPS[kind]
    async with (
        SimulatedShop(kind, orders=60, changes={"rate_limit": 10_000}, seed=1) as shop,
        Scene.open(redis_url, dsn, queue_name) as scene,
    ):
        order_ids = [shop.kind.order_id(number) for number in range(1, 61)]
        single = {**known.settings, "upstream_url": shop.base_url + known.url}
        found, requests = [], []
        for settings in (single, {**single, "upstream_bulk_url": shop.base_url + known.list_url}):
            await scene.enqueue(*order_ids)
            before = shop.state.counts["requests"]
            async with scene.worker(concurrency=60, **settings):
                await scene.finished()
            requests.append(shop.state.counts["requests"] - before)
            rows = await scene.sql("SELECT order_id, status, total, lines, attributes FROM orders ORDER BY order_id")
            found.append((rows, await scene.dead()))
            await scene.sql("TRUNCATE orders")

    assert found[1][1] == []
    assert found[0] == found[1]
    assert [row["order_id"] for row in found[0][0]] == sorted(order_ids)
    assert requests[1] < requests[0] == len(order_ids)


async def test_orders_are_requested_by_post_with_their_ids_in_the_body() -> None:
    async with (
        SimulatedApi(seed=1) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
    ):
        url = f"{api.base_url}/orders"
        async with session.post(url, json={"id": ONE}) as response:
            one = await response.read()
        async with session.post(url, json={"ids": [ONE, TWO]}) as response:
            several = await response.read()
        async with session.post(f"{url}/{TWO}", json={}) as response:
            other = await response.read()
        statuses = []
        for body in (b"", b"[]", b'{"id": 7}', b'{"ids": []}', b"\xff"):
            async with session.post(url, data=body) as response:
                statuses.append(response.status)

    assert (one, other) == (DOCUMENTS[ONE], DOCUMENTS[TWO])
    assert several == b'{"orders":[%s,%s]}' % (DOCUMENTS[ONE], DOCUMENTS[TWO])
    assert set(statuses) == {400}


async def test_a_worker_requests_orders_by_post(redis_url: str, dsn: str, queue_name: str) -> None:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        await scene.enqueue(*ORDERS)
        by_post = {"upstream_url": f"{scene.api.base_url}/orders", "upstream_method": "POST"}
        async with scene.worker(**by_post, upstream_body='{"id": "{order_id}"}'):
            await scene.finished()

        assert sorted(await scene.rows()) == sorted(ORDERS)
        assert scene.api.stats().by_id == dict.fromkeys(ORDERS, 1)
