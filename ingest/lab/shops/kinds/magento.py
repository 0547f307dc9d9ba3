"""A shop of Magento or Adobe Commerce: REST API, bearer token, search criteria, numbers for money, times without a zone."""

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from aiohttp import web

from ingest.lab.shops.kinds.kind import Document, Kind, Webhook, decimal_number, json_response, page_number
from ingest.lab.shops.making import Traits
from ingest.lab.shops.orders import ZERO, Line, ShopOrder
from ingest.lab.shops.shop_state import Event

_ORDERS = "/rest/{store:(?:[a-z_]+/)?}V1/orders"
_FORMAT = "%Y-%m-%d %H:%M:%S"
_STATES = {
    "pending": ("new", "pending"),
    "paid": ("processing", "processing"),
    "shipped": ("complete", "complete"),
    "cancelled": ("canceled", "canceled"),
}
_FILTER = re.compile(
    r"searchCriteria\[(?:filter_groups|filterGroups)\]\[(\d+)\]\[filters\]\[(\d+)\]"
    r"\[(field|value|condition_type|conditionType)\]"
)
_SORT = re.compile(r"searchCriteria\[(?:sortOrders|sort_orders)\]\[(\d+)\]\[(field|direction)\]")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda one, other: bool(one == other),
    "neq": lambda one, other: bool(one != other),
    "gt": lambda one, other: bool(one > other),
    "gteq": lambda one, other: bool(one >= other),
    "lt": lambda one, other: bool(one < other),
    "lteq": lambda one, other: bool(one <= other),
    "from": lambda one, other: bool(one >= other),
    "to": lambda one, other: bool(one <= other),
}


class Magento(Kind):
    """The API of the shop."""

    traits = Traits(fractional=True)

    def order_id(self, number: int) -> str:
        """See `Kind`."""
        return str(number)

    def number(self, order_id: str) -> int | None:
        """See `Kind`."""
        return decimal_number(order_id)

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return web.get(_ORDERS, self._search), web.get(_ORDERS + "/{id}", self._one)

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:  # noqa: ARG002  it sends none
        """See `Kind`. Magento Open Source sends no webhooks."""
        return None

    async def _one(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        order = self._state.fetch(self.number(request.match_info["id"]))
        if order is None:
            text = "The entity that was requested doesn't exist. Verify the entity and try again."
            return json_response({"message": text}, 404)
        return json_response(self._document(order))

    async def _search(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        query = request.query
        try:
            found = self._found(query)
            size = page_number(_parameter(query, "pageSize", "page_size"), max(1, len(found)))
            page = page_number(_parameter(query, "currentPage", "current_page"), 1)
        except (ValueError, KeyError):
            return json_response({"message": "Invalid search criteria."}, 400)
        # Beyond the last page, Magento repeats the last one.
        page = min(page, max(1, -(-len(found) // size)))
        shown = found[(page - 1) * size : page * size]
        if any(value == "entity_id" for value in query.values()):
            shown = [order for order in shown if self._state.fetch(order.number)]
        criteria = {"filter_groups": [], "page_size": size, "current_page": page}
        items = [self._document(order) for order in shown]
        self._site.page_served(shown)
        return json_response({"items": items, "search_criteria": criteria, "total_count": len(found)})

    def _found(self, query: Mapping[str, str]) -> list[ShopOrder]:
        groups: dict[str, dict[str, dict[str, str]]] = {}
        sorts: dict[str, dict[str, str]] = {}
        for name, value in query.items():
            if (match := _FILTER.fullmatch(name)) is not None:
                part = "condition_type" if match[3] == "conditionType" else match[3]
                groups.setdefault(match[1], {}).setdefault(match[2], {})[part] = value
            elif (match := _SORT.fullmatch(name)) is not None:
                sorts.setdefault(match[1], {})[match[2]] = value
        found = [
            order
            for order in self._state.listed(None)
            if all(any(self._fits(order, one) for one in group.values()) for group in groups.values())
        ]
        if not sorts:
            found.sort(key=lambda order: order.number)
        for _, sort in sorted(sorts.items(), reverse=True):
            field, is_descending = sort["field"], sort.get("direction", "DESC").upper() == "DESC"
            found.sort(key=lambda order: _value(order, field), reverse=is_descending)
        return found

    def _fits(self, order: ShopOrder, wanted: Mapping[str, str]) -> bool:
        field, condition = wanted["field"], wanted.get("condition_type", "eq")
        value = _value(order, field)
        if condition in {"in", "nin"}:
            return (str(value) in wanted["value"].split(",")) == (condition == "in")
        return _COMPARISONS[condition](value, type(value)(wanted["value"]))

    def _refusal(self, request: web.Request) -> web.Response | None:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._site.behaviour.token}".encode()):
            self._state.counts["unauthorized"] += 1
            text = "The consumer isn't authorized to access %resources."
            return json_response({"message": text, "parameters": {"resources": "Magento_Sales::actions_view"}}, 401)
        if not self._site.takes(self._site.bucket("requests", 1e6, 1e6)):
            return web.Response(text="<html><h1>503 Backend fetch failed</h1></html>", status=503)
        return None

    def _document(self, order: ShopOrder) -> Document:
        state, status = _STATES[order.status]
        charged, before = order.charged, order.amount(order.shipping)
        rows = [order.amount(line.subtotal).ex_tax for line in order.lines]
        discount = sum((line.discount for line in order.lines), ZERO) + order.shipping_discount
        # The tax within discounts, if prices contain tax.
        compensation = (
            order.products.inc_tax - order.products.tax - sum(rows, ZERO) + discount - order.shipping_discount
        )
        shipping_ex_tax = order.shipping_amount.ex_tax
        shipping_compensation = shipping_ex_tax - before.ex_tax + order.shipping_discount
        document: Document = {
            "base_currency_code": order.currency,
            "base_discount_amount": -float(discount),
            "base_grand_total": float(charged.inc_tax),
            "base_to_order_rate": 1,
            "created_at": _written(order.placed_at),
            "customer_email": "ada@example.com",
            "customer_is_guest": int(order.customer is None),
            "discount_amount": -float(discount),
            "discount_tax_compensation_amount": float(compensation),
            "entity_id": order.number,
            "global_currency_code": order.currency,
            "grand_total": float(charged.inc_tax),
            "increment_id": f"{order.number:09}",
            "is_virtual": int(order.country is None),
            "order_currency_code": order.currency,
            "protect_code": f"{order.number:032x}",
            "shipping_amount": float(before.ex_tax),
            "shipping_description": "Flat Rate - Fixed",
            "shipping_discount_amount": float(order.shipping_discount),
            "shipping_discount_tax_compensation_amount": float(shipping_compensation),
            "shipping_tax_amount": float(order.shipping_amount.tax),
            "state": state,
            "status": status,
            "store_currency_code": order.currency,
            "store_id": 1,
            "subtotal": float(sum(rows, ZERO)),
            "tax_amount": float(charged.tax),
            "total_due": float(charged.inc_tax) if order.status == "pending" else 0,
            "total_item_count": len(order.lines),
            "total_qty_ordered": _number(sum((line.quantity for line in order.lines), Decimal(0))),
            "updated_at": _written(order.updated_at),
            "items": list(self._items(order)),
            "billing_address": {"address_type": "billing", "country_id": order.country or "GB", "firstname": "Ada"},
            "payment": {"method": "checkmo", "amount_ordered": float(charged.inc_tax), "additional_information": []},
            "status_histories": [],
            "extension_attributes": {
                "shipping_assignments": self._assignments(order),
                "gw_price": float(order.wrapping_amount.ex_tax),
                "gw_tax_amount": float(order.wrapping_amount.tax),
            },
        }
        # Keys without a value are missing.
        if order.customer is not None:
            document["customer_id"] = order.customer
        if order.refunds:
            document["total_refunded"] = float(order.refunded.inc_tax)
        if order.status == "cancelled":
            document["total_canceled"] = float(charged.inc_tax)
        return document

    @staticmethod
    def _assignments(order: ShopOrder) -> list[Document]:
        if order.country is None:
            return []
        address = {"address_type": "shipping", "country_id": order.country, "firstname": "Ada"}
        return [{"shipping": {"address": address, "method": "flatrate_flatrate"}, "items": []}]

    def _items(self, order: ShopOrder) -> Iterable[Document]:
        for index, line in enumerate(order.lines):
            item = self._item(order, index, line)
            yield item
            if (order.number + index) % 7 == 0:
                # The variant that was sold below the configurable product, without a price.
                child = {name: item[name] for name in ("created_at", "order_id", "qty_ordered", "sku", "store_id")}
                none = dict.fromkeys(("price", "row_total", "tax_amount", "discount_amount"), 0)
                item["product_type"] = "configurable"
                yield {
                    **child,
                    **none,
                    "item_id": item["item_id"] + 500,
                    "name": f"{line.title} - variant",
                    "parent_item_id": item["item_id"],
                    "product_type": "simple",
                }

    @staticmethod
    def _item(order: ShopOrder, index: int, line: Line) -> Document:
        row, after, price = order.amount(line.subtotal), order.line_amount(line), order.amount(line.unit_price)
        refunded = sum((refund.quantity for refund in order.refunds if refund.line == index), Decimal(0))
        fixed_tax = order.fee + order.duty if index == 0 else ZERO
        return {
            "created_at": _written(order.placed_at),
            "discount_amount": float(line.discount),
            "discount_tax_compensation_amount": float(after.ex_tax - row.ex_tax + line.discount),
            "is_qty_decimal": int(line.quantity != int(line.quantity)),
            "item_id": order.number * 1000 + index,
            "name": line.title,
            "order_id": order.number,
            "price": float(price.ex_tax),
            "price_incl_tax": float(price.inc_tax),
            "product_type": "simple",
            "qty_canceled": _number(line.quantity) if order.status == "cancelled" else 0,
            "qty_ordered": _number(line.quantity),
            "qty_refunded": _number(refunded),
            "qty_shipped": _number(line.quantity) if order.status == "shipped" else 0,
            "row_total": float(row.ex_tax),
            "row_total_incl_tax": float(row.inc_tax),
            "sku": line.sku or f"item-{index}",
            "store_id": 1,
            "tax_amount": float(after.tax),
            "tax_percent": float(order.tax_rate * 100),
            "weee_tax_applied_row_amount": float(fixed_tax),
        }


def _parameter(query: Mapping[str, str], *names: str) -> str | None:
    return next((query[key] for name in names if (key := f"searchCriteria[{name}]") in query), None)


def _value(order: ShopOrder, field: str) -> str | int:
    """The value of a field that orders can be searched by. Times are compared as text, like in the shop's database."""
    match field:
        case "entity_id":
            return order.number
        case "updated_at":
            return _written(order.updated_at)
        case "created_at":
            return _written(order.placed_at)
        case "status":
            return _STATES[order.status][1]
        case "increment_id":
            return f"{order.number:09}"
        case _:
            raise KeyError(field)


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_FORMAT)


def _number(quantity: Decimal) -> int | float:
    return int(quantity) if quantity == int(quantity) else float(quantity)
