"""Serves the orders in the shapes of three shops, with their paths, credential headers and documents.

The documents contain the peculiarities of real documents that can break a mapping: envelopes, texts and numbers for the
same kind of value, empty and null values, times without a zone, and lines that have to be requested separately.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from http import HTTPStatus
from re import Pattern
from re import compile as pattern
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from ingest.lab.upstream.responses import Response, response

_SHOP_ZONE = timezone(timedelta(hours=-5))
_PAGE = 25
"""Lines on a page if an order's lines are requested separately."""

_COUNTRIES = {
    "United Kingdom": "GB",
    "Germany": "DE",
    "France": "FR",
    "EIRE": "IE",
    "Belgium": "BE",
    "Spain": "ES",
    "Netherlands": "NL",
    "Australia": "AU",
    "Portugal": "PT",
    "Switzerland": "CH",
}

Document = dict[str, Any]


class RequestedOrder(NamedTuple):
    """A request for an order in the shape of a shop.

    Attributes:
        order_id: ID of the order.
        render: makes the shop's document from our document.
    """

    order_id: bytes
    render: Callable[[Document], Document]


class Shape(NamedTuple):
    """How one shop serves its orders.

    Attributes:
        template: the path of an order, with `{order_id}`.
        path: the path as a pattern, with a group `items` if an order's lines are requested separately.
        credential: the lower-case name of the header with the credential.
        order: makes the shop's document from our document.
        items: makes a page of lines from our document and the number of the first line.
    """

    template: str
    path: Pattern[bytes]
    credential: bytes
    order: Callable[[Document], Document]
    items: Callable[[Document, int], Document] | None = None

    def requested(self, path: bytes, query: bytes) -> RequestedOrder | None:
        """The requested order, or None if the request is not for an order."""
        match = self.path.fullmatch(path)
        if match is None:
            return None
        if self.items is None or not match["items"]:
            return RequestedOrder(match["id"], self.order)
        items, first = self.items, _number(query)
        return RequestedOrder(match["id"], lambda order: items(order, first))

    def bearer(self, value: bytes) -> bytes:
        """The credential of a request in the form of `Authorization: Bearer`."""
        if self.credential != b"authorization":
            return b"Bearer " + value
        kind, _, encoded = value.partition(b" ")
        try:
            return b"Bearer " + b64decode(encoded) if kind.lower() == b"basic" else value
        except Base64Error:
            return value


def shaped(right: Response, requested: RequestedOrder) -> Response:
    """The response with our document in the requested shape."""
    document = msgspec.json.decode(right.payload.partition(b"\r\n\r\n")[2])
    return response(HTTPStatus.OK, msgspec.json.encode(requested.render(document)))


def _number(query: bytes) -> int:
    token = parse_qs(query.decode("latin-1")).get("NextToken", ["0"])[0]
    return int(token) if token.isdecimal() else 0


def _id(order: Document) -> int | str:
    """The ID as a number, as in the shops, except for bundled orders with other IDs."""
    return int(order["id"]) if order["id"].isdecimal() else str(order["id"])


def _placed_at(order: Document) -> datetime:
    return datetime.fromisoformat(order["placed_at"])


def _updated_at(order: Document) -> datetime:
    return datetime.fromisoformat(order.get("updated_at") or order["placed_at"])


def _country(order: Document) -> str | None:
    return _COUNTRIES.get(order["country"] or "")


def _total(line: Document) -> str:
    return str(line["quantity"] * Decimal(str(line["unit_price"])))


def _shopify(order: Document) -> Document:
    is_cancelled = order["status"] == "cancelled"
    customer, country = order["customer_id"], _country(order)
    placed_at, updated_at = (
        moment.astimezone(_SHOP_ZONE).isoformat() for moment in (_placed_at(order), _updated_at(order))
    )
    total = str(sum((Decimal(_total(line)) for line in order["lines"]), Decimal(0)))
    document = {
        "id": _id(order),
        "admin_graphql_api_id": f"gid://shopify/Order/{order['id']}",
        "name": f"#{order['id']}",
        "created_at": placed_at,
        "processed_at": placed_at,
        "updated_at": updated_at,
        "cancelled_at": updated_at if is_cancelled else None,
        "cancel_reason": "customer" if is_cancelled else None,
        "closed_at": None,
        "financial_status": "refunded" if is_cancelled else "paid",
        "fulfillment_status": None,
        "currency": order["currency"],
        "presentment_currency": order["currency"],
        "taxes_included": True,
        "total_price": total,
        "current_total_price": "0.00" if is_cancelled else total,
        "customer": None
        if customer is None
        else {"id": int(customer) if customer.isdecimal() else customer, "email": ""},
        "shipping_address": None if country is None else {"country": order["country"], "country_code": country},
        "billing_address": None,
        "line_items": [
            {
                "id": 1_000 + index,
                "variant_id": None,
                "sku": line["sku"],
                "title": line["description"],
                "name": line["description"],
                "quantity": line["quantity"],
                "current_quantity": 0 if is_cancelled else line["quantity"],
                "price": line["unit_price"],
                "total_discount": "0.00",
                "discount_allocations": [],
                "properties": [],
            }
            for index, line in enumerate(order["lines"])
        ],
        "shipping_lines": [],
        "tax_lines": [],
        "refunds": [],
        "note_attributes": [],
        "tags": "",
        "test": False,
    }
    return {"order": document}


def _woocommerce(order: Document) -> Document:
    country = _country(order) or ""
    placed_at, updated_at = (
        moment.astimezone(UTC).replace(tzinfo=None).isoformat() for moment in (_placed_at(order), _updated_at(order))
    )
    customer = order["customer_id"] or "0"
    total = str(sum((Decimal(_total(line)) for line in order["lines"]), Decimal(0)))
    return {
        "id": _id(order),
        "number": order["id"],
        "status": "cancelled" if order["status"] == "cancelled" else "completed",
        "currency": order["currency"],
        "date_created_gmt": placed_at,
        "date_modified_gmt": updated_at,
        "date_paid_gmt": placed_at,
        "date_completed_gmt": None,
        "total": total,
        "total_tax": "0.00",
        "discount_total": "0.00",
        "prices_include_tax": False,
        "customer_id": int(customer) if customer.isdecimal() else customer,
        "billing": {"country": country, "email": ""},
        "shipping": {"country": country} if country else [],
        "line_items": [
            {
                "id": index,
                "name": (line["description"] or "").replace("&", "&amp;"),
                "product_id": 0,
                "sku": line["sku"],
                "quantity": line["quantity"],
                "price": float(line["unit_price"]),
                "total": _total(line),
                "meta_data": [],
            }
            for index, line in enumerate(order["lines"], 1)
        ],
        "shipping_lines": [],
        "fee_lines": [],
        "coupon_lines": [],
        "refunds": [],
        "meta_data": [],
        "_links": {},
    }


def _amazon(order: Document) -> Document:
    is_cancelled = order["status"] == "cancelled"
    total = str(sum((Decimal(_total(line)) for line in order["lines"]), Decimal(0)))
    document = {
        "AmazonOrderId": order["id"],
        "PurchaseDate": order["placed_at"],
        "LastUpdateDate": order.get("updated_at") or order["placed_at"],
        "OrderStatus": "Canceled" if is_cancelled else "Shipped",
        "FulfillmentChannel": "MFN",
        "SalesChannel": "Amazon.co.uk",
        "MarketplaceId": "A1F83G8C2ARO7P",
        "IsPrime": False,
        "OrderTotal": {"CurrencyCode": order["currency"], "Amount": total},
    }
    country = _country(order)
    if country is not None and not is_cancelled:
        document["ShippingAddress"] = {"CountryCode": country}
    return {"payload": document}


def _amazon_items(order: Document, first: int) -> Document:
    lines = order["lines"][first : first + _PAGE]
    payload: Document = {
        "AmazonOrderId": order["id"],
        "OrderItems": [
            {
                "ASIN": f"B{first + index:09}",
                "OrderItemId": f"0{first + index:013}",
                "SellerSKU": line["sku"],
                "Title": line["description"],
                "QuantityOrdered": line["quantity"],
                "ItemPrice": {"CurrencyCode": order["currency"], "Amount": _total(line)},
                "IsGift": "false",
            }
            for index, line in enumerate(lines)
        ],
    }
    if first + _PAGE < len(order["lines"]):
        payload["NextToken"] = str(first + _PAGE)
    return {"payload": payload}


_ID = rb"(?P<id>[^/]+)"

SHAPES = {
    "shopify": Shape(
        "/admin/api/2026-07/orders/{order_id}.json",
        pattern(rb"/admin/api/[0-9]{4}-[0-9]{2}/orders/" + _ID + rb"\.json"),
        b"x-shopify-access-token",
        _shopify,
    ),
    "woocommerce": Shape(
        "/wp-json/wc/v3/orders/{order_id}", pattern(rb"/wp-json/wc/v3/orders/" + _ID), b"authorization", _woocommerce
    ),
    "amazon": Shape(
        "/orders/v0/orders/{order_id}",
        pattern(rb"/orders/v0/orders/" + _ID + rb"(?P<items>/orderItems)?"),
        b"x-amz-access-token",
        _amazon,
        _amazon_items,
    ),
}
"""The shapes by the value of `shape` in the behaviour."""
