"""A WooCommerce shop: REST API version 3, Basic authentication, lists by page."""

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.kind import (
    Document,
    Kind,
    Webhook,
    hmac_base64,
    json_response,
    page_number,
    read_time,
)
from ingest.lab.shops.kinds.woocommerce_documents import FIRST_ID, ORDERS, SITE_ZONE, STATUSES, woocommerce_order
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_state import Event


class WooCommerce(Kind):
    """The API of the shop."""

    token = "ck_simulated:cs_simulated"  # noqa: S105  a default for tests
    first_id = FIRST_ID
    most_failures = 5

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return web.get(ORDERS, self._guarded(self._list)), web.get(ORDERS + "/{id}", self._guarded(self._one))

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`."""
        if event == "status":
            return None
        order_id = int(self.order_id(order.number))
        body = msgspec.json.encode({"id": order_id} if event == "deleted" else self._document(order))
        headers = {
            "User-Agent": "WooCommerce/10.4.0 Hookshot (WordPress/6.9)",
            "X-WC-Webhook-Source": self._site.base_url + "/",
            "X-WC-Webhook-Topic": f"order.{event}",
            "X-WC-Webhook-Resource": "order",
            "X-WC-Webhook-Event": event,
            "X-WC-Webhook-Signature": hmac_base64(secret, body),
            "X-WC-Webhook-ID": "12",
            "X-WC-Webhook-Delivery-ID": f"{self._state.now():%Y%m%d%H%M%S}",
        }
        return Webhook(body, headers)

    async def _one(self, request: web.Request) -> web.Response:
        order = self._requested(request)
        if self._site.behaviour.is_unreadable(order.number):
            return _error("woocommerce_rest_cannot_view", "Sorry, you cannot view this resource.", 403)
        return json_response(self._document(order))

    def _document(self, order: ShopOrder) -> Document:
        document = woocommerce_order(order, self._site.base_url)
        return {**document, "status": "checkout-draft"} if self._site.behaviour.is_draft(order.number) else document

    def _is_shown(self, order: ShopOrder) -> bool:
        behaviour = self._site.behaviour
        return not (behaviour.is_draft(order.number) or behaviour.is_unreadable(order.number))

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        page, size = page_number(query.get("page"), 1), self._views.size(page_number(query.get("per_page"), 10, 100))
        found = self._listed(query)
        if query.get("order", "desc") == "desc":
            found.reverse()
        offset = int(query.get("offset", (page - 1) * size))
        shown, pages = self._views.page(found, offset, size).shown, -(-len(found) // size)
        if "include" in query:
            shown = [order for order in shown if self._views.fetch(order.number)]
        response = json_response([self._document(order) for order in shown if self._is_shown(order)])
        response.headers["X-WP-Total"], response.headers["X-WP-TotalPages"] = str(len(found)), str(pages)
        links = [
            f'<{self._site.base_url}{ORDERS}?{urlencode({**query, "page": number})}>; rel="{name}"'
            for name, number in (("prev", page - 1), ("next", page + 1))
            if 1 <= number <= pages
        ]
        if links:
            response.headers["Link"] = ", ".join(links)
        self._site.page_served(shown)
        return response

    def _listed(self, query: Mapping[str, str]) -> list[ShopOrder]:
        if "include" in query:
            numbers = {self.number(order_id) for order_id in query["include"].split(",")}
            return [order for order in self._views.all_orders() if order.number in numbers]
        is_gmt = query.get("dates_are_gmt") in {"true", "1"}

        def moment(name: str) -> datetime | None:
            at = read_time(query.get(name))
            # Without the parameter, times are in the zone of the site.
            return at if at is None or is_gmt else at - SITE_ZONE

        # Both bounds of WooCommerce are exclusive.
        since, until = moment("modified_after"), moment("modified_before")
        listed = [order for order in self._views.listed(since, until) if order.listed_at not in {since, until}]
        after, before = moment("after"), moment("before")
        listed = [
            order
            for order in listed
            if (after is None or order.placed_at > after) and (before is None or order.placed_at < before)
        ]
        statuses = query.get("status", "any").split(",")
        if "any" not in statuses:
            listed = [order for order in listed if STATUSES[order.status] in statuses]
        if query.get("orderby", "date") != "modified":
            listed.sort(key=lambda order: (order.placed_at, order.number))
        return listed

    def _missing(self) -> web.Response:
        return _error("woocommerce_rest_shop_order_invalid_id", "Invalid ID.", 404)

    def _invalid(self, _problem: str) -> web.Response:
        return _error("rest_invalid_param", "Invalid parameter(s)", 400)

    def _refusal(self, request: web.Request, *_limits: object) -> web.Response | None:
        expected = "Basic " + b64encode(self._site.behaviour.token.encode()).decode()
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), expected.encode()):
            return self._unauthorized(_error("woocommerce_rest_cannot_view", "Sorry, you cannot list resources.", 401))
        if not self._site.takes(self._site.bucket("requests", 1e6, 1e6)):
            # WooCommerce itself has no limit. The host's firewall responds with a page.
            return web.Response(
                text="<html><h1>429 Too Many Requests</h1></html>", status=429, content_type="text/html"
            )
        return None


def _error(code: str, message: str, status: int) -> web.Response:
    return json_response({"code": code, "message": message, "data": {"status": status}}, status)
