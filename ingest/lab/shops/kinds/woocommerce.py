"""A WooCommerce shop: REST API version 3, Basic authentication, lists by page."""

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape
from urllib.parse import urlencode

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
from ingest.lab.shops.orders import NO_AMOUNT, Amount, Line, ShopOrder
from ingest.lab.shops.shop_state import Event

_FIRST_ID = 1000  # posts of WordPress share one sequence, so the first order is not 1
_ORDERS = "/wp-json/wc/v3/orders"
_SITE_ZONE = timedelta(hours=2)
_STATUSES = {"pending": "pending", "paid": "processing", "shipped": "completed", "cancelled": "cancelled"}


class WooCommerce(Kind):
    """The API of the shop."""

    token = "ck_simulated:cs_simulated"  # noqa: S105  a default for tests

    def order_id(self, number: int) -> str:
        """See `Kind`."""
        return str(_FIRST_ID + number)

    def number(self, order_id: str) -> int | None:
        """See `Kind`."""
        found = decimal_number(order_id)
        return None if found is None else found - _FIRST_ID

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return web.get(_ORDERS, self._list), web.get(_ORDERS + "/{id}", self._one)

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`."""
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
        if (refused := self._refusal(request)) is not None:
            return refused
        order = self._state.fetch(self.number(request.match_info["id"]))
        if order is None:
            return _error("woocommerce_rest_shop_order_invalid_id", "Invalid ID.", 404)
        return json_response(self._document(order))

    async def _list(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        query = request.query
        try:
            page, size = page_number(query.get("page"), 1), page_number(query.get("per_page"), 10, 100)
            found = self._listed(query)
        except ValueError:
            return _error("rest_invalid_param", "Invalid parameter(s)", 400)
        if query.get("order", "desc") == "desc":
            found.reverse()
        offset = int(query.get("offset", (page - 1) * size))
        shown, pages = found[offset : offset + size], -(-len(found) // size)
        if "include" in query:
            shown = [order for order in shown if self._state.fetch(order.number)]
        response = json_response([self._document(order) for order in shown])
        response.headers["X-WP-Total"], response.headers["X-WP-TotalPages"] = str(len(found)), str(pages)
        links = [
            f'<{self._site.base_url}{_ORDERS}?{urlencode({**query, "page": number})}>; rel="{name}"'
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
            return [order for order in self._state.listed(None) if order.number in numbers]
        is_gmt = query.get("dates_are_gmt") in {"true", "1"}

        def moment(name: str) -> datetime | None:
            at = read_time(query.get(name))
            # Without the parameter, times are in the zone of the site.
            return at if at is None or is_gmt else at - _SITE_ZONE

        # Both bounds of WooCommerce are exclusive.
        since, until = moment("modified_after"), moment("modified_before")
        listed = [order for order in self._state.listed(since, until) if order.updated_at not in {since, until}]
        after, before = moment("after"), moment("before")
        listed = [
            order
            for order in listed
            if (after is None or order.placed_at > after) and (before is None or order.placed_at < before)
        ]
        statuses = query.get("status", "any").split(",")
        if "any" not in statuses:
            listed = [order for order in listed if _STATUSES[order.status] in statuses]
        if query.get("orderby", "date") != "modified":
            listed.sort(key=lambda order: (order.placed_at, order.number))
        return listed

    def _refusal(self, request: web.Request) -> web.Response | None:
        expected = "Basic " + b64encode(self._site.behaviour.token.encode()).decode()
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), expected.encode()):
            self._state.counts["unauthorized"] += 1
            return _error("woocommerce_rest_cannot_view", "Sorry, you cannot list resources.", 401)
        if not self._site.takes(self._site.bucket("requests", 1e6, 1e6)):
            # WooCommerce has no limit of its own. The host's firewall responds with a page.
            return web.Response(
                text="<html><h1>429 Too Many Requests</h1></html>", status=429, content_type="text/html"
            )
        return None

    def _document(self, order: ShopOrder) -> Document:
        country = order.country or ""
        charged, shipping = order.charged, order.shipping_amount
        is_paid = order.status in {"paid", "shipped"}
        discount = sum((self._discount(order, line) for line in order.lines), NO_AMOUNT)
        fees = [
            (name, amount)
            for name, amount in (
                ("Gift wrapping", order.wrapping_amount),
                ("Customs &amp; duties", Amount(order.duty)),
                ("Small order fee", Amount(order.fee)),
            )
            if amount.inc_tax
        ]
        return {
            "id": int(self.order_id(order.number)),
            "parent_id": 0,
            "status": _STATUSES[order.status],
            "currency": order.currency,
            "version": "10.4.0",
            "prices_include_tax": order.taxes_included,
            "date_created": _site_time(order.placed_at),
            "date_modified": _site_time(order.updated_at),
            "discount_total": str(discount.ex_tax),
            "discount_tax": str(discount.tax),
            "shipping_total": str(shipping.ex_tax),
            "shipping_tax": str(shipping.tax),
            "cart_tax": str(charged.tax - shipping.tax),
            "total": str(charged.inc_tax),
            "total_tax": str(charged.tax),
            "customer_id": order.customer or 0,
            "order_key": f"wc_order_{order.number:013x}",
            "billing": {"first_name": "Ada", "last_name": "Example", "country": country, "email": "ada@example.com"},
            "shipping": {"first_name": "", "last_name": "", "country": country},
            "payment_method": "bacs" if is_paid else "",
            "transaction_id": "",
            "customer_note": "",
            "date_completed": _site_time(order.updated_at) if order.status == "shipped" else None,
            "date_paid": _site_time(order.placed_at) if is_paid else None,
            "number": self.order_id(order.number),
            "meta_data": [
                {"id": 1, "key": "_revision", "value": order.revision},
                {"id": 2, "key": "gift_message", "value": ""},
            ],
            "line_items": [self._line(order, index, line) for index, line in enumerate(order.lines, 1)],
            "tax_lines": [
                {
                    "id": 901,
                    "rate_code": "VAT-1",
                    "rate_id": 1,
                    "label": "VAT",
                    "compound": False,
                    "tax_total": str(charged.tax - shipping.tax),
                    "shipping_tax_total": str(shipping.tax),
                    "rate_percent": float(order.tax_rate * 100),
                    "meta_data": [],
                }
            ]
            if charged.tax
            else [],
            "shipping_lines": [
                {
                    "id": 801,
                    "method_title": "Flat rate",
                    "method_id": "flat_rate",
                    "instance_id": "1",
                    "total": str(shipping.ex_tax),
                    "total_tax": str(shipping.tax),
                    "taxes": [],
                    "meta_data": [],
                }
            ],
            "fee_lines": [
                {
                    "id": 701 + index,
                    "name": name,
                    "tax_class": "",
                    "tax_status": "taxable" if amount.tax else "none",
                    "amount": str(amount.ex_tax),
                    "total": str(amount.ex_tax),
                    "total_tax": str(amount.tax),
                    "taxes": [],
                    "meta_data": [],
                }
                for index, (name, amount) in enumerate(fees)
            ],
            "coupon_lines": [
                {
                    "id": 601,
                    "code": "SAVE",
                    "discount": str(discount.ex_tax),
                    "discount_tax": str(discount.tax),
                    "meta_data": [],
                }
            ]
            if discount.ex_tax
            else [],
            "refunds": [
                {"id": 500_000 + refund.number, "reason": "", "total": f"-{refund.amount.inc_tax}"}
                for refund in reversed(order.refunds)
            ],
            "payment_url": "",
            "is_editable": False,
            "needs_payment": order.status == "pending",
            "date_created_gmt": _gmt(order.placed_at),
            "date_modified_gmt": _gmt(order.updated_at),
            "date_completed_gmt": _gmt(order.updated_at) if order.status == "shipped" else None,
            "date_paid_gmt": _gmt(order.placed_at) if is_paid else None,
            "currency_symbol": "€",
            "_links": {"self": [{"href": f"{self._site.base_url}{_ORDERS}/{self.order_id(order.number)}"}]},
        }

    @staticmethod
    def _discount(order: ShopOrder, line: Line) -> Amount:
        before, after = order.amount(line.subtotal), order.line_amount(line)
        return Amount(before.ex_tax - after.ex_tax, before.tax - after.tax)

    @staticmethod
    def _line(order: ShopOrder, index: int, line: Line) -> Document:
        before, after = order.amount(line.subtotal), order.line_amount(line)
        quantity = int(line.quantity)
        return {
            "id": index,
            "name": escape(line.title, quote=False),
            "product_id": 0 if not line.sku else 93 + index,
            "variation_id": 0,
            "quantity": quantity,
            "tax_class": "",
            "subtotal": str(before.ex_tax),
            "subtotal_tax": str(before.tax),
            "total": str(after.ex_tax),
            "total_tax": str(after.tax),
            "taxes": [{"id": 1, "total": str(after.tax), "subtotal": str(before.tax)}] if after.tax else [],
            "meta_data": [],
            # The SKU of a deleted product is null.
            "sku": line.sku or None,
            "global_unique_id": "",
            # Divided in binary floating point, as PHP does.
            "price": float(after.ex_tax) / float(quantity or Decimal(1)),
            "image": {"id": "", "src": ""},
            "parent_name": None,
        }


def _gmt(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat()


def _site_time(moment: datetime) -> str:
    return (moment.replace(tzinfo=None) + _SITE_ZONE).isoformat()


def _error(code: str, message: str, status: int) -> web.Response:
    return json_response({"code": code, "message": message, "data": {"status": status}}, status)
