"""An external API without a kind: our own documents, and lists by page, offset, cursor or link, with times in any format."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
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
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_state import Event

_ORDERS = "/orders"
_SIZE, _LARGEST = 100, 1000


class Plain(Kind):
    """The API."""

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return web.get(_ORDERS, self._guarded(self._list)), web.get(_ORDERS + "/{id}", self._guarded(self._one))

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`. The body names the order only."""
        body = msgspec.json.encode({"id": self.order_id(order.number), "event": event})
        return Webhook(body, {"X-Signature": hmac_base64(secret, body)})

    async def _one(self, request: web.Request) -> web.Response:
        return json_response(_document(self._requested(request)))

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        found = self._views.listed(self._moment(query, "since"), self._moment(query, "until"))
        size = self._views.size(page_number(query.get("limit"), _SIZE, _LARGEST))
        page = self._views.page(found, _start(query, found, size), size)
        body: Document = {
            "orders": [self._element(order) for order in page.shown],
            "next": None,
            "has_more": page.has_more,
            "total": len(found),
            "pages": -(-len(found) // size),
        }
        response_headers = {}
        if page.has_more and page.selected:
            last = page.selected[-1]
            body["next"] = f"{last.listed_at.timestamp():.0f}_{last.number}_{self._views.new_cursor()}"
            parameters = urlencode({**query, "cursor": body["next"]})
            response_headers["Link"] = f'<{self._site.base_url}{_ORDERS}?{parameters}>; rel="next"'
        self._site.page_served(page.shown)
        return json_response(body, headers=response_headers)

    def _element(self, order: ShopOrder) -> Document:
        text = self._site.behaviour.time_format
        at = order.updated_at.astimezone(UTC)
        return {
            "id": self.order_id(order.number),
            "updated_at": at.strftime(text) if text else f"{at:%Y-%m-%dT%H:%M:%SZ}",
            "total": str(order.charged.inc_tax),
        }

    def _moment(self, query: Mapping[str, str], name: str) -> datetime | None:
        text, value = self._site.behaviour.time_format, query.get(name)
        if not text or value is None:
            return read_time(value)
        return datetime.strptime(value, text).replace(tzinfo=UTC)

    def _missing(self) -> web.Response:
        return json_response({"error": "not found"}, 404)

    def _refusal(self, request: web.Request, *_limits: object) -> web.Response | None:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._site.behaviour.token}".encode()):
            return self._unauthorized(json_response({"error": "unauthorized"}, 401))
        if not self._site.takes(self._site.bucket("requests", 1e6, 1e6)):
            return json_response({"error": "too many requests"}, 429, {"Retry-After": "1"})
        return None


def _start(query: Mapping[str, str], found: Sequence[ShopOrder], size: int) -> int:
    """Return the place of the first order of a page."""
    if "cursor" in query:
        at, number, *_ = query["cursor"].split("_")
        return sum((int(order.listed_at.timestamp()), order.number) <= (int(at), int(number)) for order in found)
    return int(query.get("offset", (page_number(query.get("page"), 1) - 1) * size))


def _document(order: ShopOrder) -> Document:
    return {
        "id": str(order.number),
        "status": order.status,
        "placed_at": f"{order.placed_at:%Y-%m-%dT%H:%M:%SZ}",
        "updated_at": f"{order.updated_at:%Y-%m-%dT%H:%M:%SZ}",
        "currency": order.currency,
        "customer_id": None if order.customer is None else str(order.customer),
        "country": order.country,
        "lines": [
            {
                "sku": line.sku,
                "description": line.title,
                "quantity": str(line.quantity),
                "unit_price": str(line.unit_price),
            }
            for line in order.lines
        ],
    }
