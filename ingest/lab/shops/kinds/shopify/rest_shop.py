"""A shop of Shopify with the legacy REST Admin API: orders one by one, by IDs, and lists with cursors in Link headers."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.kind import json_response, page_number, read_time
from ingest.lab.shops.kinds.shopify.rest_documents import rest_order
from ingest.lab.shops.kinds.shopify.shopify_access import UNAUTHORIZED, ShopifyShop
from ingest.lab.shops.orders import ShopOrder

_RATE, _BURST = 2.0, 40
_API = "/admin/api/{version:[0-9]{4}-[0-9]{2}}"


class _Cursor(msgspec.Struct):
    """A position in a list, with the filters of the list.

    Attributes:
        after: time and number of the last order on the page before.
        query: the filters of the first page.
        nonce: makes the cursor differ from others.
    """

    after: tuple[str, int]
    query: dict[str, str]
    nonce: str


class ShopifyRest(ShopifyShop):
    """The API of the shop."""

    def _order_routes(self) -> Iterable[web.RouteDef]:
        return (
            web.get(_API + "/orders.json", self._versioned(self._guarded(self._list))),
            web.get(_API + "/orders/count.json", self._versioned(self._guarded(self._count))),
            web.get(_API + "/orders/{id:[^/]+}.json", self._versioned(self._guarded(self._one))),
        )

    async def _one(self, request: web.Request) -> web.Response:
        return json_response({"order": rest_order(self._requested(request))})

    async def _count(self, request: web.Request) -> web.Response:
        return json_response({"count": len(self._listed(request.query))})

    async def _list(self, request: web.Request) -> web.Response:
        size = self._views.size(page_number(request.query.get("limit"), 50, 250))
        cursor = _read_cursor(request.query.get("page_info"))
        query = dict(request.query) if cursor is None else cursor.query
        found = self._listed(query)
        start = 0
        if cursor is not None:
            if not request.query.keys() <= {"page_info", "limit", "fields"}:
                return json_response({"errors": {"page_info": "cannot be combined with filters"}}, 400)
            start = sum(_position(order) <= (read_time(cursor.after[0]), cursor.after[1]) for order in found)
        page = self._views.page(found, start, size)
        shown = page.shown
        response = json_response({"orders": [rest_order(order) for order in shown]})
        if page.has_more and page.selected:
            last = page.selected[-1]
            after = (last.listed_at.isoformat(), last.number)
            page_info = _write_cursor(_Cursor(after, query, self._views.new_cursor()))
            parameters = urlencode({"limit": size, "page_info": page_info})
            response.headers["Link"] = f'<{self._site.base_url}{request.path}?{parameters}>; rel="next"'
        self._site.page_served(shown)
        return response

    def _listed(self, query: Mapping[str, str]) -> list[ShopOrder]:
        if "ids" in query:
            numbers = {self.number(order_id) for order_id in query["ids"].split(",")}
            found = [order for order in self._views.all_orders() if order.number in numbers]
            return [order for order in found if self._views.fetch(order.number)]
        found = self._views.listed(read_time(query.get("updated_at_min")), read_time(query.get("updated_at_max")))
        placed, until = read_time(query.get("created_at_min")), read_time(query.get("created_at_max"))
        found = [order for order in found if placed is None or order.placed_at >= placed]
        found = [order for order in found if until is None or order.placed_at <= until]
        # Without `status`, closed and cancelled orders are missing.
        if query.get("status", "open") == "open":
            return [order for order in found if order.status != "cancelled"]
        return found

    def _missing(self) -> web.Response:
        return json_response({"errors": "Not Found"}, 404)

    def _invalid(self, _problem: str) -> web.Response:
        return json_response({"errors": {"order": "Invalid parameter"}}, 400)

    def _refusal(self, request: web.Request, *_limits: object) -> web.Response | None:
        if not self.is_allowed(request):
            return json_response({"errors": UNAUTHORIZED}, 401)
        if not self._site.takes(self._site.bucket("requests", _RATE, _BURST)):
            text = "Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."
            return self._stamped(json_response({"errors": text}, 429, {"Retry-After": "2.0"}))
        return None

    def _stamped(self, response: web.Response, *_limits: object) -> web.Response:
        bucket = self._site.bucket("requests", _RATE, _BURST)
        used = bucket.size - bucket.available
        response.headers["X-Shopify-Shop-Api-Call-Limit"] = f"{max(1, round(used))}/{round(bucket.size)}"
        return response


def _position(order: ShopOrder) -> tuple[object, int]:
    return order.listed_at, order.number


def _write_cursor(cursor: _Cursor) -> str:
    return urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def _read_cursor(text: str | None) -> _Cursor | None:
    return None if text is None else msgspec.json.decode(urlsafe_b64decode(text), type=_Cursor)
