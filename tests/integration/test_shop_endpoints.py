"""Simulated shops beyond single orders, with lists, the rate limit in the form of the shop, and orders by POST."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from integration.scene import Scene

from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.samples import sample_orders

DOCUMENTS = sample_orders()
ORDERS = list(DOCUMENTS)[:60]
ONE, TWO = ORDERS[:2]
LISTS = {
    "shopify": {},
    "woocommerce": {},
    "amazon": {"upstream_bulk_path": "payload.Orders", "upstream_bulk_id": "AmazonOrderId"},
}


@asynccontextmanager
async def shop(**behaviour: Any) -> AsyncIterator[tuple[SimulatedApi, aiohttp.ClientSession]]:
    async with (
        SimulatedApi(Behaviour(**behaviour), seed=1) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
    ):
        yield api, session


@pytest.mark.parametrize("name", LISTS)
async def test_orders_of_a_shop_are_stored_alike_by_bulk_and_by_single_requests(
    redis_url: str, dsn: str, queue_name: str, name: str
) -> None:
    async with Scene.open(redis_url, dsn, queue_name, Behaviour(shape=name)) as scene:  # type: ignore[arg-type]
        found = []
        for settings in ({}, {"upstream_bulk_url": scene.api.list_template, **LISTS[name]}):
            scene.api.reset_stats()
            await scene.enqueue(*ORDERS)
            async with scene.worker(mapping=name, concurrency=60, **settings):
                await scene.finished()
            rows = await scene.sql("SELECT order_id, status, total, lines, attributes FROM orders ORDER BY order_id")
            found.append((rows, await scene.dead()))
            await scene.sql("TRUNCATE orders")
        listed = scene.api.stats()

    assert found[1][1] == []
    assert found[0] == found[1]
    assert [row["order_id"] for row in found[0][0]] == sorted(ORDERS)
    assert listed.by_status.keys() == {"200"}
    if name != "amazon":  # whose lines are requested order by order
        assert listed.requests < len(ORDERS)


async def test_a_shopify_shop_tells_how_much_of_its_limit_is_used_and_refuses_in_its_own_words() -> None:
    async with shop(shape="shopify", rate_limit=0.001, rate_burst=2, retry_after=2) as (api, session):
        answers = []
        for _ in range(3):
            async with session.get(api.url_template.format(order_id=ONE)) as response:
                answers.append((response, await response.json()))

    assert [response.status for response, _ in answers] == [200, 200, 429]
    assert [response.headers["X-Shopify-Shop-Api-Call-Limit"] for response, _ in answers] == ["1/2", "2/2", "2/2"]
    assert answers[-1][0].headers["Retry-After"] == "2.0"
    assert answers[-1][1]["errors"].startswith("Exceeded 0.001 calls per second")


async def test_orders_are_requested_by_post_with_their_ids_in_the_body() -> None:
    async with shop() as (api, session):
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
