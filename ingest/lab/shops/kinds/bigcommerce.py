"""A BigCommerce store: REST API version 2, orders with sub-resources, dates of RFC 2822, and 204 for empty lists."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from email.utils import format_datetime, parsedate_to_datetime
from hashlib import sha256
from typing import Any

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.kind import (
    Document,
    Kind,
    Webhook,
    decimal_number,
    hmac_base64,
    json_response,
    page_number,
    read_time,
)
from ingest.lab.shops.orders import ZERO, Amount, Line, ShopOrder
from ingest.lab.shops.shop_state import Event

STORE = "simulated"
"""The hash of the store in its URLs."""

_FIRST_ID = 100
_ORDERS = f"/stores/{STORE}/v2/orders"
_RATE, _BURST = 5.0, 150  # 150 requests in 30 seconds
_STATUSES = {
    "pending": (1, "Pending"),
    "paid": (11, "Awaiting Fulfillment"),
    "shipped": (2, "Shipped"),
    "cancelled": (5, "Cancelled"),
}
_SCOPES = {"created": "store/order/created", "updated": "store/order/updated", "deleted": "store/order/archived"}


class BigCommerce(Kind):
    """The API of the store."""

    def order_id(self, number: int) -> str:
        """See `Kind`."""
        return str(_FIRST_ID + number)

    def number(self, order_id: str) -> int | None:
        """See `Kind`."""
        found = decimal_number(order_id)
        return None if found is None else found - _FIRST_ID

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return (
            web.get(_ORDERS, self._list),
            web.get(_ORDERS + "/{id}", self._one),
            web.get(_ORDERS + "/{id}/products", self._products),
            web.get(_ORDERS + "/{id}/shipping_addresses", self._addresses),
        )

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`. The body names the order only."""
        at = int(self._state.now().timestamp())
        data = {"type": "order", "id": int(self.order_id(order.number))}
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
        if (refused := self._refusal(request)) is not None:
            return refused
        order = self._state.fetch(self.number(request.match_info["id"]))
        if order is None:
            return self._missing()
        return self._stamped(json_response(self._document(order, with_fees=_includes_fees(request.query))))

    async def _products(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        order = self._state.get(self.number(request.match_info["id"]))
        if order is None:
            return self._missing()
        return self._page([_product(order, index, line) for index, line in enumerate(order.lines)], request.query)

    async def _addresses(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        order = self._state.get(self.number(request.match_info["id"]))
        if order is None:
            return self._missing()
        address = {"id": order.number, "order_id": _FIRST_ID + order.number, "country_iso2": order.country}
        return self._page([address] if order.country else [], request.query)

    async def _list(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        query = request.query
        try:
            found = self._listed(query)
        except ValueError:
            return self._stamped(_error(400, "The field is invalid."))
        with_fees = _includes_fees(query)
        shown = _slice(found, query)
        documents = [self._document(order, with_fees=with_fees) for order in shown]
        self._site.page_served(shown)
        return self._stamped(json_response(documents) if documents else web.Response(status=204))

    def _page(self, documents: list[Document], query: Mapping[str, str]) -> web.Response:
        shown = _slice(documents, query)
        return self._stamped(json_response(shown) if shown else web.Response(status=204))

    def _listed(self, query: Mapping[str, str]) -> list[ShopOrder]:
        found = self._state.listed(_moment(query, "min_date_modified"), _moment(query, "max_date_modified"))
        since, until = _moment(query, "min_date_created"), _moment(query, "max_date_created")
        found = [order for order in found if since is None or order.placed_at >= since]
        found = [order for order in found if until is None or order.placed_at <= until]
        field, _, direction = query.get("sort", "id:asc").partition(":")
        if field != "date_modified":
            found.sort(key=lambda order: order.number)
        if direction == "desc":
            found.reverse()
        return found

    def _refusal(self, request: web.Request) -> web.Response | None:
        given = request.headers.get("X-Auth-Token", "")
        if not hmac.compare_digest(given.encode(), self._site.behaviour.token.encode()):
            self._state.counts["unauthorized"] += 1
            return _error(401, "Your request was not authenticated.")
        if not self._site.takes(self._site.bucket("requests", _RATE, _BURST)):
            return self._stamped(_error(429, "You have exceeded the rate limit."))
        return None

    def _stamped(self, response: web.Response) -> web.Response:
        bucket = self._site.bucket("requests", _RATE, _BURST)
        left = bucket.available
        milliseconds = int((bucket.size - left if left >= 1 else 1 - left) / bucket.rate * 1000) + 1
        response.headers["X-Rate-Limit-Requests-Left"] = str(int(left))
        response.headers["X-Rate-Limit-Requests-Quota"] = str(int(bucket.size))
        response.headers["X-Rate-Limit-Time-Reset-Ms"] = str(milliseconds)
        response.headers["X-Rate-Limit-Time-Window-Ms"] = str(int(bucket.size / bucket.rate * 1000))
        return response

    def _missing(self) -> web.Response:
        return self._stamped(_error(404, "The requested resource was not found."))

    def _document(self, order: ShopOrder, *, with_fees: bool) -> Document:
        charged, shipping, wrapping = order.charged, order.shipping_amount, order.wrapping_amount
        status_id, status = _STATUSES[order.status]
        totals = [_line_total(order, line) for line in order.lines]
        subtotal = sum(totals, Amount(ZERO))
        order_id = _FIRST_ID + order.number
        resource = f"{self._site.base_url}{_ORDERS}/{order_id}"
        document = {
            "id": order_id,
            "customer_id": order.customer or 0,
            "date_created": format_datetime(order.placed_at),
            "date_modified": format_datetime(order.updated_at),
            "date_shipped": format_datetime(order.updated_at) if order.status == "shipped" else "",
            "status_id": status_id,
            "status": status,
            **_three("subtotal", subtotal),
            "base_shipping_cost": _money(order.shipping),
            **_three("shipping_cost", shipping),
            **_three("handling_cost", Amount(ZERO)),
            **_three("wrapping_cost", wrapping),
            **_three("total", charged),
            "items_total": int(sum((line.quantity for line in order.lines), Decimal(0))),
            "items_shipped": len(order.lines) if order.status == "shipped" else 0,
            "payment_method": "Manual",
            "payment_status": "" if order.status == "pending" else "captured",
            "refunded_amount": _money(order.refunded.inc_tax),
            "store_credit_amount": "0.0000",
            "gift_certificate_amount": "0.0000",
            "currency_id": 1,
            "currency_code": order.currency,
            "currency_exchange_rate": "1.0000000000",
            "default_currency_id": 1,
            "default_currency_code": order.currency,
            "staff_notes": f"revision {order.revision}",
            "customer_message": "",
            "discount_amount": _money(sum((line.discount for line in order.lines), ZERO)),
            "coupon_discount": "0.0000",
            "is_deleted": False,
            "tax_provider_id": "BasicTaxProvider",
            "billing_address": {"first_name": "Ada", "country": "", "country_iso2": order.country or "", "email": ""},
            "products": {"url": f"{resource}/products", "resource": f"/orders/{order_id}/products"},
            "shipping_addresses": {
                "url": f"{resource}/shipping_addresses",
                "resource": f"/orders/{order_id}/shipping_addresses",
            },
            "external_id": None,
            "external_source": None,
            "channel_id": 1,
        }
        if with_fees:
            document["fees"] = [
                {
                    "id": index,
                    "type": "custom_fee",
                    "name": name,
                    "display_name_customer": name,
                    "display_name_merchant": name,
                    **{f"cost{suffix}": _money(cost) for suffix in ("", "_ex_tax", "_inc_tax")},
                    "cost_tax": "0.0000",
                    "source": "APP",
                }
                for index, (name, cost) in enumerate((("Small order", order.fee), ("Import duty", order.duty)), 1)
                if cost
            ]
        return document


def _line_total(order: ShopOrder, line: Line) -> Amount:
    """The price before discounts, with the tax after discounts."""
    tax = order.line_amount(line).tax
    return Amount(line.subtotal - tax, tax) if order.taxes_included else Amount(line.subtotal, tax)


def _product(order: ShopOrder, index: int, line: Line) -> Document:
    price, total = order.amount(line.unit_price), _line_total(order, line)
    refunded = sum((refund.quantity for refund in order.refunds if refund.line == index), Decimal(0))
    return {
        "id": order.number * 1000 + index,
        "order_id": _FIRST_ID + order.number,
        "product_id": 0 if not line.sku else 500 + index,
        "variant_id": 600 + index,
        "order_address_id": order.number,
        "name": line.title,
        "sku": line.sku,
        "upc": "",
        "type": "physical",
        "base_price": _money(line.unit_price),
        "price_ex_tax": _money(price.ex_tax),
        "price_inc_tax": _money(price.inc_tax),
        "price_tax": _money(price.tax),
        "base_total": _money(line.subtotal),
        "total_ex_tax": _money(total.ex_tax),
        "total_inc_tax": _money(total.inc_tax),
        "total_tax": _money(total.tax),
        "quantity": int(line.quantity),
        "is_refunded": refunded >= line.quantity,
        "quantity_refunded": int(refunded),
        "refund_amount": "0.0000",
        "quantity_shipped": int(line.quantity) if order.status == "shipped" else 0,
        "applied_discounts": [
            {"id": "coupon", "amount": _money(line.discount), "name": "Spring", "code": "SPRING", "target": "product"}
        ]
        if line.discount
        else [],
        "product_options": [],
    }


def _money(amount: Decimal) -> str:
    return f"{amount:.4f}"


def _three(name: str, amount: Amount) -> Document:
    return {
        f"{name}_ex_tax": _money(amount.ex_tax),
        f"{name}_inc_tax": _money(amount.inc_tax),
        f"{name}_tax": _money(amount.tax),
    }


def _moment(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name)
    if text is None or text[:1].isdecimal():
        return read_time(text)
    return parsedate_to_datetime(text)


def _slice(found: Sequence[Any], query: Mapping[str, str]) -> list[Any]:
    size, page = page_number(query.get("limit"), 50, 250), page_number(query.get("page"), 1)
    return list(found[(page - 1) * size : page * size])


def _includes_fees(query: Mapping[str, str]) -> bool:
    return "fees" in query.get("include", "").split(",")


def _error(status: int, message: str) -> web.Response:
    return json_response([{"status": status, "message": message}], status)
