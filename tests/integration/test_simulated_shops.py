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
from support import eventually

from ingest.lab.shops.simulated_shop import SimulatedShop

ORDERS = 120
SINCE = "2020-01-01T00:00:00"

CLOSED = "http://127.0.0.1:1/"
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


async def query(http: aiohttp.ClientSession, shop: SimulatedShop, text: str, **variables: Any) -> dict[str, Any]:
    body = {"query": text, "variables": variables}
    url = f"{shop.base_url}/admin/api/2026-07/graphql.json"
    async with http.post(url, json=body, headers=SHOPIFY) as response:
        assert response.status == 200
        return await response.json()  # type: ignore[no-any-return]


LINES = """
lineItems(first: $first, after: $after) {
  nodes { quantity originalUnitPriceSet { ...money } discountAllocations { allocatedAmountSet { ...money } } }
  pageInfo { hasNextPage endCursor }
}
"""
MONEY = "fragment money on MoneyBag { shopMoney { amount } }"


async def test_orders_of_shopify_add_up_over_pages_of_lines(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("shopify", orders=ORDERS, seed=1, changes={"rate_limit": 1e6}) as shop:
        whole = """
        query($id: ID!, $first: Int = 20, $after: String) {
          order(id: $id) {
            taxesIncluded
            totalPriceSet { ...money }
            totalTaxSet { ...money }
            originalTotalDutiesSet { ...money }
            additionalFees { price { ...money } }
            shippingLines(first: 5) {
              edges { node { originalPriceSet { ...money } discountAllocations { allocatedAmountSet { ...money } } } }
            }
        """
        pages = set()
        for number in (*range(41, 61), 100):
            gid, after, lines = f"gid://shopify/Order/{shop.kind.order_id(number)}", None, []
            while True:
                result = await query(http, shop, f"{whole}{LINES} }} }} {MONEY}", id=gid, after=after)
                order = result["data"]["order"]
                lines += order["lineItems"]["nodes"]
                if not order["lineItems"]["pageInfo"]["hasNextPage"]:
                    break
                after = order["lineItems"]["pageInfo"]["endCursor"]
            pages.add(after)

            def amount(money: dict[str, Any] | None) -> Decimal:
                return Decimal(money["shopMoney"]["amount"]) if money else Decimal(0)

            shipping = [edge["node"] for edge in order["shippingLines"]["edges"]]
            charges = [amount(line["originalUnitPriceSet"]) * line["quantity"] for line in lines]
            charges += [amount(line["originalPriceSet"]) for line in shipping]
            charges += [amount(fee["price"]) for fee in order["additionalFees"]]
            charges += [amount(order["originalTotalDutiesSet"])]
            charges += [] if order["taxesIncluded"] else [amount(order["totalTaxSet"])]
            discounts = [
                amount(each["allocatedAmountSet"]) for line in lines + shipping for each in line["discountAllocations"]
            ]
            assert sum(charges) - sum(discounts) == amount(order["totalPriceSet"])
        assert len(pages) > 1


async def test_the_list_of_shopify_continues_after_a_cursor_while_it_shifts(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("shopify", orders=ORDERS, changes={"rate_limit": 1e6, "shifts": 2}) as shop:
        text = """
        query($after: String) {
          orders(first: 50, after: $after, sortKey: UPDATED_AT, query: "updated_at:>='2020-01-01T00:00:00Z'") {
            nodes { legacyResourceId updatedAt }
            pageInfo { hasNextPage endCursor }
          }
        }
        """
        seen, after = [], None
        while True:
            page = (await query(http, shop, text, after=after))["data"]["orders"]
            seen += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = page["pageInfo"]["endCursor"]

        assert len({order["legacyResourceId"] for order in seen}) == ORDERS
        assert len(seen) == ORDERS + 2
        assert [order["updatedAt"] for order in seen] == sorted(order["updatedAt"] for order in seen)


async def test_shopify_counts_points_and_throttles_as_a_200(http: aiohttp.ClientSession) -> None:
    text = "query($id: ID!) { order(id: $id) { id customer { id } lineItems(first: 10) { nodes { sku } } } }"
    limits = {"rate_limit": 0.001, "rate_burst": 25}
    async with SimulatedShop("shopify", orders=1, seed=3, changes=limits) as shop:
        missing = await query(http, shop, text, id="gid://shopify/Order/1")
        assert missing["data"] == {"order": None}
        cost = missing["extensions"]["cost"]
        assert (cost["requestedQueryCost"], cost["actualQueryCost"]) == (14, 0)

        gid = f"gid://shopify/Order/{shop.kind.order_id(1)}"
        first = (await query(http, shop, text, id=gid))["extensions"]["cost"]
        throttled = [await query(http, shop, text, id=gid) for _ in range(3)][-1]

        assert first["throttleStatus"] == {
            "maximumAvailable": 25,
            "currentlyAvailable": 25 - first["actualQueryCost"],
            "restoreRate": 0.001,
        }
        assert "data" not in throttled
        assert throttled["errors"][0]["extensions"]["code"] == "THROTTLED"
        assert throttled["extensions"]["cost"]["actualQueryCost"] is None
        assert (await get(http, f"{shop.base_url}/stats", {}))["used"]["points"] <= 25


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{ order(id: "gid://shopify/Order/6200407290001") { colour } }', "undefinedField"),
        ("{ orders { nodes { id } } }", "BAD_REQUEST"),
        ('{ order(id: "1") { id } }', "argumentLiteralsIncompatible"),
        ("{ order(id: ", "parseError"),
        ("mutation { orderDelete }", "parseError"),
        (
            "{ orders(first: 250) { nodes { lineItems(first: 250) { nodes { a { b { c } d { e } f { g } h { i } j { k } l { m } } } } } } }",
            "MAX_COST_EXCEEDED",
        ),
    ],
)
async def test_shopify_rejects_a_wrong_query_in_a_200(http: aiohttp.ClientSession, text: str, code: str) -> None:
    async with SimulatedShop("shopify", orders=1) as shop:
        result = await query(http, shop, text)

        assert result["errors"][0]["extensions"]["code"] == code


async def amazon_login(http: aiohttp.ClientSession, shop: SimulatedShop, **changes: str) -> tuple[int, dict[str, Any]]:
    form = {
        "grant_type": "refresh_token",
        "refresh_token": "Atzr|simulated",
        "client_id": "simulated-client",
        "client_secret": "simulated-secret",
    }
    async with http.post(f"{shop.base_url}/auth/o2/token", data=form | changes) as response:
        return response.status, await response.json()


async def amazon_headers(http: aiohttp.ClientSession, shop: SimulatedShop) -> dict[str, str]:
    status, token = await amazon_login(http, shop)
    assert (status, token["token_type"], token["expires_in"]) == (200, "bearer", 3600)
    return {"x-amz-access-token": token["access_token"]}


async def test_orders_of_amazon_add_up_and_come_by_token(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("amazon", orders=ORDERS, seed=1) as shop:
        headers = await amazon_headers(http, shop)
        url, seen, token = f"{shop.base_url}/orders/2026-01-01/orders", [], ""
        while True:
            query = {"lastUpdatedAfter": SINCE + "Z", "includedData": "PROCEEDS,FULFILLMENT", "maxResultsPerPage": "50"}
            page = await get(http, url, headers, **query, paginationToken=token)
            seen += page["orders"]
            token = page.get("pagination", {}).get("nextToken")
            if not token:
                break

        assert len({order["orderId"] for order in seen}) == ORDERS
        paid = [order for order in seen if order["fulfillment"]["fulfillmentStatus"] != "PENDING"]
        assert 0 < len(paid) < ORDERS
        for order in paid:
            breakdowns = [each for item in order["orderItems"] for each in item["proceeds"]["breakdowns"]]
            amounts = [each["subtotal"]["amount"] for each in breakdowns]
            assert total(*amounts) == total(order["proceeds"]["grandTotal"]["amount"])


async def test_items_of_amazon_v0_come_page_by_page_and_add_up(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("amazon", orders=ORDERS, seed=1, changes={"rate_limit": 1000}) as shop:
        headers = await amazon_headers(http, shop)
        for number in range(41, 61):
            url = f"{shop.base_url}/orders/v0/orders/{shop.kind.order_id(number)}"
            order, items, query = (await get(http, url, headers))["payload"], [], {}
            while True:
                page = (await get(http, f"{url}/orderItems", headers, **query))["payload"]
                items += page["OrderItems"]
                if "NextToken" not in page:
                    break
                query = {"NextToken": page["NextToken"]}
            if order["OrderStatus"] == "Pending":
                assert "OrderTotal" not in order
                continue
            charges = [
                item[name]["Amount"]
                for item in items
                for name in ("ItemPrice", "ShippingPrice", "CODFee")
                if name in item
            ]
            wrapping = [item["BuyerInfo"]["GiftWrapPrice"]["Amount"] for item in items if "BuyerInfo" in item]
            discounts = [
                item[name]["Amount"]
                for item in items
                for name in ("PromotionDiscount", "ShippingDiscount")
                if name in item
            ]
            assert total(*charges, *wrapping) - total(*discounts) == total(order["OrderTotal"]["Amount"])


async def test_amazon_rejects_a_wrong_login_and_a_period_that_ends_now(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("amazon", orders=3) as shop:
        assert await amazon_login(http, shop, refresh_token="other") == (
            400,
            {"error": "invalid_grant", "error_description": "The request has an invalid grant"},
        )
        assert (await amazon_login(http, shop, client_secret="other"))[0] == 401
        query = {"lastUpdatedAfter": SINCE + "Z", "lastUpdatedBefore": f"{shop.state.now():%Y-%m-%dT%H:%M:%SZ}"}
        headers = await amazon_headers(http, shop)

        async with http.get(f"{shop.base_url}/orders/2026-01-01/orders", headers=headers, params=query) as response:
            assert response.status == 400
            assert (await response.json())["errors"][0]["code"] == "InvalidInput"


async def test_each_operation_of_amazon_has_its_own_limit(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("amazon", orders=3) as shop:
        headers = await amazon_headers(http, shop)
        order_id = shop.kind.order_id(1)
        one, items = (f"{shop.base_url}/orders/{path}" for path in (f"2026-01-01/orders/{order_id}", "v0/orders"))
        statuses = []
        for _ in range(31):
            async with http.get(one, headers=headers) as response:
                statuses.append((response.status, response.headers.get("x-amzn-RateLimit-Limit")))
                body = await response.json()

        assert statuses == [(200, "0.5")] * 30 + [(429, None)]
        assert body["errors"][0]["code"] == "QuotaExceeded"
        query = {"MarketplaceIds": "A1PA6795UKMFR9", "LastUpdatedAfter": SINCE + "Z"}
        assert len((await get(http, items, headers, **query))["payload"]["Orders"]) == 3


async def test_orders_of_bigcommerce_add_up_and_an_empty_list_is_a_204(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("bigcommerce", orders=ORDERS, seed=1, changes={"rate_limit": 1000}) as shop:
        headers = {"X-Auth-Token": "simulated-token"}
        url = f"{shop.base_url}/stores/simulated/v2/orders"
        query = {"min_date_modified": "Wed, 01 Jan 2020 00:00:00 +0000", "sort": "date_modified:asc", "include": "fees"}
        seen = [
            order for page in ("1", "2", "3") for order in await get(http, url, headers, page=page, limit="50", **query)
        ]
        async with http.get(url, headers=headers, params={"page": "4", **query}) as response:
            assert (response.status, await response.read()) == (204, b"")

        assert len({order["id"] for order in seen}) == ORDERS
        for order in seen:
            products = await get(http, f"{url}/{order['id']}/products", headers, limit="250")
            if len(products) == 250:
                products += await get(http, f"{url}/{order['id']}/products", headers, limit="250", page="2")
            amounts = [product["total_inc_tax"] for product in products] + [
                fee["cost_inc_tax"] for fee in order["fees"]
            ]
            amounts += [order[f"{name}_cost_inc_tax"] for name in ("shipping", "handling", "wrapping")]
            discounts = total(order["discount_amount"], order["coupon_discount"])
            assert total(*amounts) - discounts == total(order["total_inc_tax"])


async def test_orders_of_magento_add_up_and_the_last_page_repeats(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("magento", orders=ORDERS, seed=1) as shop:
        headers = {"Authorization": "Bearer simulated-token"}
        url, found = f"{shop.base_url}/rest/V1/orders", "searchCriteria[filter_groups][0][filters][0]"
        query = {
            f"{found}[field]": "updated_at",
            f"{found}[value]": "2020-01-01 00:00:00",
            f"{found}[condition_type]": "gteq",
            "searchCriteria[sortOrders][0][field]": "updated_at",
            "searchCriteria[sortOrders][0][direction]": "ASC",
            "searchCriteria[pageSize]": "50",
        }
        pages = [
            await get(http, url, headers, **query, **{"searchCriteria[currentPage]": str(page)})
            for page in (1, 2, 3, 4)
        ]
        seen = [order for page in pages[:3] for order in page["items"]]

        assert pages[3]["items"] == pages[2]["items"]
        assert {page["total_count"] for page in pages} == {ORDERS}
        assert len({order["entity_id"] for order in seen}) == ORDERS
        assert any(item["is_qty_decimal"] for order in seen for item in order["items"] if "parent_item_id" not in item)
        for order in seen:
            parents = [item for item in order["items"] if "parent_item_id" not in item]
            amounts = [item[name] for item in parents for name in ("row_total", "weee_tax_applied_row_amount")]
            names = ("shipping_amount", "discount_amount", "tax_amount", "discount_tax_compensation_amount")
            amounts += [order[name] for name in (*names, "shipping_discount_tax_compensation_amount")]
            assert total(*amounts, order["extension_attributes"]["gw_price"]) == total(order["grand_total"])


async def test_magento_finds_orders_by_their_ids(http: aiohttp.ClientSession) -> None:
    async with SimulatedShop("magento", orders=9) as shop:
        found = "searchCriteria[filter_groups][0][filters][0]"
        query = {f"{found}[field]": "entity_id", f"{found}[value]": "2,5,99", f"{found}[condition_type]": "in"}
        headers = {"Authorization": "Bearer simulated-token"}

        page = await get(http, f"{shop.base_url}/rest/V1/orders", headers, **query)

        assert [order["entity_id"] for order in page["items"]] == [2, 5]


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
        async with http.post(f"{shop.base_url}/shop/changes", json={"ids": ["1002"], "late": 0.5}) as response:
            (changed,) = await response.json()
        hidden = await get(http, f"{shop.base_url}/shop/orders", {})
        by_id = await get(http, f"{shop.base_url}/wp-json/wc/v3/orders", BASIC, include="1002")
        visible = hidden
        while len(visible) < 3:
            visible = await get(http, f"{shop.base_url}/shop/orders", {})

        assert len(hidden) == 2
        assert [order["id"] for order in by_id] == [1002]
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
    async with SimulatedShop(kind, orders=3, changes={"webhooks": url, "webhook_secret": "secret"}) as shop:
        await http.post(f"{shop.base_url}/shop/changes", json={"ids": [shop.kind.order_id(2)]})
        while not received:
            await get(http, f"{shop.base_url}/stats", {})
    await runner.cleanup()

    ((headers, body),) = received
    assert headers[header] == base64.b64encode(hmac.digest(b"secret", body, hashlib.sha256)).decode()
    assert "update" in headers[id_header]


@pytest.mark.parametrize(("kind", "times"), [("shopify-rest", 9), ("bigcommerce", 10)])
async def test_a_failed_webhook_is_sent_again_by_the_schedule_of_the_shop(kind: str, times: int) -> None:
    async with SimulatedShop(kind, orders=1, changes={"webhooks": CLOSED, "webhook_hour": 0.001}) as shop:
        shop.state.change(shop.state.random_orders(1)[0])
        await eventually(lambda: shop.state.counts["webhooks_failed"] == times)

        assert shop.state.counts["webhooks_repeated"] == times - 1


async def test_woocommerce_disables_webhooks_after_more_than_five_failures() -> None:
    async with SimulatedShop("woocommerce", orders=1, changes={"webhooks": CLOSED, "webhook_hour": 0.001}) as shop:
        for failures in range(1, 7):
            assert shop.site.behaviour.webhooks == CLOSED
            shop.state.change(shop.state.random_orders(1)[0])
            await eventually(lambda failures=failures: shop.state.counts["webhooks_failed"] == failures)

        assert shop.site.behaviour.webhooks is None


def test_webhooks_of_one_event_in_shopify_share_its_id_only() -> None:
    shop = SimulatedShop("shopify", orders=1, seed=1)
    order = shop.state.create(quiet=True)

    sent = [shop.kind.webhook(event, order, b"secret") for event in ("created", "updated", "status")]

    headers = [webhook.headers for webhook in sent if webhook is not None]
    assert len({each["X-Shopify-Event-Id"] for each in headers}) == 1
    assert len({each["X-Shopify-Webhook-Id"] for each in headers}) == 3


async def test_the_same_seed_makes_the_same_orders() -> None:
    first, second = (SimulatedShop("woocommerce", orders=50, seed=7) for _ in range(2))

    for number in range(1, 51):
        one, other = first.state.get(number), second.state.get(number)
        assert one is not None
        assert other is not None
        assert (one.lines, one.charged, one.status) == (other.lines, other.charged, other.status)
