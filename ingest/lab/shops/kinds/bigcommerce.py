"""A BigCommerce store: REST API version 2, orders with sub-resources, dates of RFC 2822, and 204 for empty lists."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.bigcommerce_documents import FIRST_ID, STORE, bigcommerce_order, bigcommerce_product
from ingest.lab.shops.kinds.kind import (
    Document,
    Kind,
    Webhook,
    existing,
    hmac_base64,
    json_response,
    page_number,
    read_time,
)
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_state import Event

_API = "/stores/{store:[a-z0-9]+}"  # any hash is accepted
_RATE, _BURST = 5.0, 150  # 150 requests in 30 seconds
_SCOPES = {
    "created": "store/order/created",
    "updated": "store/order/updated",
    "deleted": "store/order/archived",
    "status": "store/order/statusUpdated",
}


class BigCommerce(Kind):
    """The API of the store."""

    first_id = FIRST_ID
    retries = (5.0, 300.0, 1800.0, *(3600.0 * hours for hours in (2, 5, 10, 14, 20, 24)))

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return (
            web.get(_API + "/v2/orders", self._guarded(self._list)),
            web.get(_API + "/v2/orders/{id}", self._guarded(self._one)),
            web.get(_API + "/v2/orders/{id}/products", self._guarded(self._products)),
            web.get(_API + "/v2/orders/{id}/shipping_addresses", self._guarded(self._addresses)),
            web.post(_API + "/v3/hooks", self._guarded(self._create_webhook)),
        )

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`. The body names the order only."""
        at = int(self._state.now().timestamp())
        data: Document = {"type": "order", "id": int(self.order_id(order.number))}
        if event == "status":
            status_id = self._document(order, with_fees=False)["status_id"]
            data["status"] = {"previous_status_id": 0, "new_status_id": status_id}
        digest = sha256(f"{order.number}.{order.revision}.{event}".encode()).hexdigest()
        body = msgspec.json.encode(
            {
                "scope": _SCOPES[event],
                "store_id": "1025646",
                "data": data,
                "hash": digest[:40],
                "created_at": at,
                "producer": f"stores/{STORE}",
            }
        )
        signed = f"{digest[:24]}.{at}.".encode() + body
        headers = {
            "webhook-id": digest[:24],
            "webhook-timestamp": str(at),
            "webhook-signature": f"v1,{hmac_base64(secret, signed)}",
        }
        return Webhook(body, headers)

    async def _one(self, request: web.Request) -> web.Response:
        order = self._requested(request)
        return json_response(self._document(order, with_fees=_includes_fees(request.query)))

    def _document(self, order: ShopOrder, *, with_fees: bool) -> Document:
        document = bigcommerce_order(order, self._site.base_url, with_fees=with_fees)
        incomplete = {"status_id": 0, "status": "Incomplete"}
        return {**document, **incomplete} if self._site.behaviour.is_draft(order.number) else document

    async def _products(self, request: web.Request) -> web.Response:
        order = existing(self._views.read(self.number(request.match_info["id"])))
        return self._page(
            [bigcommerce_product(order, index, line) for index, line in enumerate(order.lines)], request.query
        )

    async def _addresses(self, request: web.Request) -> web.Response:
        order = existing(self._views.read(self.number(request.match_info["id"])))
        address = {"id": order.number, "order_id": FIRST_ID + order.number, "country_iso2": order.country}
        return self._page([address] if order.country else [], request.query)

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        found = self._listed(query)
        with_fees = _includes_fees(query)
        size, page = self._views.size(_size(query)), page_number(query.get("page"), 1)
        shown = self._views.page(found, (page - 1) * size, size).shown
        documents = [self._document(order, with_fees=with_fees) for order in shown]
        self._site.page_served(shown)
        return json_response(documents) if documents else web.Response(status=204)

    async def _create_webhook(self, request: web.Request) -> web.Response:
        """Send webhooks to another URL from now on."""
        wanted = msgspec.json.decode(await request.read(), type=Document)
        self._site.behave(webhooks=wanted.get("destination"))
        hook = {"id": 18_048_287, "client_id": "simulated", "store_hash": request.match_info["store"], **wanted}
        return json_response({"data": hook, "meta": {}})

    def _page(self, documents: list[Document], query: Mapping[str, str]) -> web.Response:
        shown = _slice(documents, query)
        return json_response(shown) if shown else web.Response(status=204)

    def _listed(self, query: Mapping[str, str]) -> list[ShopOrder]:
        found = self._views.listed(_moment(query, "min_date_modified"), _moment(query, "max_date_modified"))
        since, until = _moment(query, "min_date_created"), _moment(query, "max_date_created")
        found = [order for order in found if since is None or order.placed_at >= since]
        found = [order for order in found if until is None or order.placed_at <= until]
        field, _, direction = query.get("sort", "id:asc").partition(":")
        if field != "date_modified":
            found.sort(key=lambda order: order.number)
        if direction == "desc":
            found.reverse()
        return found

    def _refusal(self, request: web.Request, *_limits: object) -> web.Response | None:
        given = request.headers.get("X-Auth-Token", "")
        if not hmac.compare_digest(given.encode(), self._site.behaviour.token.encode()):
            return self._unauthorized(_error(401, "Your request was not authenticated."))
        if not self._site.takes(self._site.bucket("requests", _RATE, _BURST)):
            return self._stamped(_error(429, "You have exceeded the rate limit."))
        return None

    def _stamped(self, response: web.Response, *_limits: object) -> web.Response:
        bucket = self._site.bucket("requests", _RATE, _BURST)
        left = bucket.available
        milliseconds = int((bucket.size - left if left >= 1 else 1 - left) / bucket.rate * 1000) + 1
        response.headers["X-Rate-Limit-Requests-Left"] = str(int(left))
        response.headers["X-Rate-Limit-Requests-Quota"] = str(int(bucket.size))
        response.headers["X-Rate-Limit-Time-Reset-Ms"] = str(milliseconds)
        response.headers["X-Rate-Limit-Time-Window-Ms"] = str(int(bucket.size / bucket.rate * 1000))
        return response

    def _missing(self) -> web.Response:
        return _error(404, "The requested resource was not found.")

    def _invalid(self, _problem: str) -> web.Response:
        return _error(400, "The field is invalid.")


def _moment(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name)
    if text is None or text[:1].isdecimal():
        return read_time(text)
    return parsedate_to_datetime(text)


def _slice(found: Sequence[Any], query: Mapping[str, str]) -> list[Any]:
    size, page = _size(query), page_number(query.get("page"), 1)
    return list(found[(page - 1) * size : page * size])


def _size(query: Mapping[str, str]) -> int:
    return page_number(query.get("limit"), 50, 250)


def _includes_fees(query: Mapping[str, str]) -> bool:
    return "fees" in query.get("include", "").split(",")


def _error(status: int, message: str) -> web.Response:
    return json_response([{"status": status, "message": message}], status)
