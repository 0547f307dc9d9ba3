"""Each simulated shop behaves like the real one: login, orders, lists, limits and webhooks."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ingest.lab.shops.simulated_shop import SimulatedShop

ORDERS = 120
SINCE = "2020-01-01T00:00:00"

BASIC = {"Authorization": "Basic " + base64.b64encode(b"ck_simulated:cs_simulated").decode()}
SHOPIFY = {"X-Shopify-Access-Token": "shpat_simulated"}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def get(http: aiohttp.ClientSession, url: str, headers: dict[str, str], **query: str) -> Any:
    async with http.get(url, headers=headers, params=query) as response:
        assert response.status == 200, await response.text()
        return await response.json()


def total(*amounts: Any) -> Decimal:
    return sum((Decimal(str(amount)) for amount in amounts), Decimal(0))


async def test_orders_of_woocommerce_add_up_and_come_page_by_page(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("woocommerce", orders=ORDERS, seed=1) as shop:
        query = {"modified_after": SINCE, "dates_are_gmt": "true", "orderby": "modified", "order": "asc"}
        url, seen = f"{shop.base_url}/wp-json/wc/v3/orders", []
        for page in ("1", "2"):
            seen += await get(http, url, BASIC, page=page, per_page="100", **query)

        assert len({order["id"] for order in seen}) == ORDERS
        assert seen == sorted(seen, key=lambda order: (order["date_modified_gmt"], order["id"]))
        for order in seen:
            parts = order["line_items"] + order["shipping_lines"] + order["fee_lines"]
            assert total(*(part[name] for part in parts for name in ("total", "total_tax"))) == total(order["total"])


async def test_orders_of_shopify_rest_add_up_and_come_by_cursor(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("shopify-rest", orders=ORDERS, seed=1) as shop:
        url, seen, link = f"{shop.base_url}/admin/api/2026-07/orders.json", [], None
        query = {"status": "any", "limit": "50", "updated_at_min": SINCE + "Z"}
        while True:
            async with http.get(link or url, headers=SHOPIFY, params=None if link else query) as response:
                seen += (await response.json())["orders"]
                if "next" not in response.links:
                    break
                link = response.links["next"]["url"]

        assert len({order["id"] for order in seen}) == ORDERS
        for order in seen:
            lines, shipping = order["line_items"], order["shipping_lines"]
            discounts = [each["amount"] for line in lines + shipping for each in line["discount_allocations"]]
            taxes = [] if order["taxes_included"] else [tax["price"] for tax in order["tax_lines"]]
            extras = [
                each["shop_money"]["amount"]
                for name in ("original_total_duties_set", "original_total_additional_fees_set")
                if (each := order[name])
            ]
            prices = [Decimal(line["price"]) * line["quantity"] for line in lines]
            prices += [Decimal(line["price"]) for line in shipping]
            assert total(*prices, *taxes, *extras) - total(*discounts) == total(order["total_price"])


async def test_an_app_logs_in_to_shopify_and_its_token_can_be_revoked(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("shopify-rest", orders=1) as shop:
        order_url = f"{shop.base_url}/admin/api/2026-07/orders/{shop.kind.order_id(1)}.json"
        form = {
            "grant_type": "client_credentials",
            "client_id": "simulated-client",
            "client_secret": "simulated-secret",
        }
        async with http.post(f"{shop.base_url}/admin/oauth/access_token", data=form) as response:
            token = {"X-Shopify-Access-Token": (await response.json())["access_token"]}

        await get(http, order_url, token)
        await http.delete(f"{shop.base_url}/shop/tokens")

        async with http.get(order_url, headers=token) as response:
            assert response.status == 401


async def test_shopify_rest_rejects_more_requests_than_its_bucket_holds(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("shopify-rest", orders=1, changes={"rate_limit": 0.001, "rate_burst": 2}) as shop:
        order_url = f"{shop.base_url}/admin/api/2026-07/orders/{shop.kind.order_id(1)}.json"
        for _ in range(2):
            await get(http, order_url, SHOPIFY)

        async with http.get(order_url, headers=SHOPIFY) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "2.0")
            assert response.headers["X-Shopify-Shop-Api-Call-Limit"] == "2/2"
        stats = await get(http, f"{shop.base_url}/stats", {})
        assert (stats["fetches"], stats["counts"]["throttled"], stats["used"]["requests"]) == (2, 1, 2.0)


async def test_a_late_change_is_listed_later_with_its_own_time(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("woocommerce", orders=3) as shop:
        async with http.post(f"{shop.base_url}/shop/changes", json={"ids": ["1002"], "late": 0.05}) as response:
            (changed,) = await response.json()
        hidden = await get(http, f"{shop.base_url}/shop/orders", {})
        visible = hidden
        while len(visible) < 3:
            visible = await get(http, f"{shop.base_url}/shop/orders", {})

        assert len(hidden) == 2
        assert changed in visible


@pytest.mark.parametrize(
    ("kind", "header", "id_header"),
    [
        ("woocommerce", "X-WC-Webhook-Signature", "X-WC-Webhook-Topic"),
        ("shopify-rest", "X-Shopify-Hmac-Sha256", "X-Shopify-Topic"),
    ],
)
async def test_a_change_sends_a_signed_webhook(
    http: aiohttp.ClientSession, kind: str, header: str, id_header: str
) -> None:
    received = []

    async def receive(request: web.Request) -> web.Response:
        received.append((request.headers.copy(), await request.read()))
        return web.Response()

    application = web.Application()
    application.add_routes([web.post("/", receive)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with SimulatedShop(kind, orders=3, changes={"webhooks": url}, webhook_secret=b"secret") as shop:
        await http.post(f"{shop.base_url}/shop/changes", json={"ids": [shop.kind.order_id(2)]})
        while not received:
            await get(http, f"{shop.base_url}/stats", {})
    await runner.cleanup()

    ((headers, body),) = received
    assert headers[header] == base64.b64encode(hmac.digest(b"secret", body, hashlib.sha256)).decode()
    assert "update" in headers[id_header]


async def test_the_same_seed_makes_the_same_orders() -> None:
    first, second = (SimulatedShop("woocommerce", orders=50, seed=7) for _ in range(2))

    for number in range(1, 51):
        one, other = first.state.get(number), second.state.get(number)
        assert one is not None
        assert other is not None
        assert (one.lines, one.charged, one.status) == (other.lines, other.charged, other.status)
