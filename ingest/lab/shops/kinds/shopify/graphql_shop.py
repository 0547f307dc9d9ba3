"""A shop of Shopify with the GraphQL Admin API: orders with pages of lines, lists by cursor, and a limit in points."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from ingest.lab.bucket import Bucket
from ingest.lab.shops.kinds.kind import Document, json_response, read_time
from ingest.lab.shops.kinds.shopify.graphql import Connection, execute, requested_cost
from ingest.lab.shops.kinds.shopify.graphql_query import Arguments, Field, QueryError, parse
from ingest.lab.shops.kinds.shopify.order_tree import order_tree
from ingest.lab.shops.kinds.shopify.shopify_access import UNAUTHORIZED, ShopifyShop
from ingest.lab.shops.list_page import ListPage
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_site import ShopSite

_RATE, _SIZE = 100.0, 2000
_HIGHEST_COST = 1000
_LIMITS_PAGE = "https://shopify.dev/api/usage/rate-limits"
_GID = "gid://shopify/Order/"
_TERM = re.compile(r"""(\w+):(>=|<=|>|<|)(?:"([^"]*)"|'([^']*)'|(\S+))""")

_SORT_KEYS: dict[str, Callable[[ShopOrder], datetime]] = {
    "UPDATED_AT": lambda order: order.listed_at,
    "CREATED_AT": lambda order: order.placed_at,
    "PROCESSED_AT": lambda order: order.placed_at,
}
_COMPARISONS: dict[str, Callable[[datetime, datetime], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "": lambda one, other: one == other,
}


class _Query(msgspec.Struct):
    """The body of a request."""

    query: str
    variables: dict[str, Any] | None = None


class Shopify(ShopifyShop):
    """The API of the shop."""

    def __init__(self, site: ShopSite) -> None:
        super().__init__(site)
        self._shown: list[ShopOrder] = []  # on a page, while a query is executed

    def _order_routes(self) -> Iterable[web.RouteDef]:
        return (web.post("/admin/api/{version:[0-9]{4}-[0-9]{2}|unstable}/graphql.json", self._versioned(self._query)),)

    async def _query(self, request: web.Request) -> web.Response:
        if not self.is_allowed(request):
            return json_response({"errors": UNAUTHORIZED}, 401)
        try:
            body = msgspec.json.decode(await request.read(), type=_Query)
        except ValueError:
            return json_response({"errors": {"query": "Required parameter missing or invalid"}}, 400)
        try:
            fields = parse(body.query, body.variables or {})
            return json_response(self._result(fields))
        except QueryError as error:
            return json_response({"errors": [_error(str(error), error.code)]})

    def _result(self, fields: Sequence[Field]) -> Document:
        bucket = self._site.bucket("points", _RATE, _SIZE)
        requested = requested_cost(fields)
        if requested > _HIGHEST_COST:
            text = f"Query cost is {requested:.0f}, which exceeds the single query max cost limit ({_HIGHEST_COST})."
            raise QueryError(text, "MAX_COST_EXCEEDED")
        if not self._site.takes(bucket, requested):
            error = _error("Throttled", "THROTTLED", documentation=_LIMITS_PAGE)
            return {"errors": [error], "extensions": _cost(bucket, requested, None)}
        self._shown.clear()
        try:
            result = execute(fields, self._root())
        except QueryError:
            bucket.give_back(requested)
            raise
        bucket.give_back(requested - min(requested, result.cost))
        if any(each.name == "orders" for each in fields):
            self._site.page_served(self._shown)
        cost = {"extensions": _cost(bucket, requested, min(requested, result.cost))}
        return {"data": result.data, **cost, **self._denied(result.data.get("order"))}

    def _denied(self, order: Any) -> Document:
        """Remove a nullable field of an order to which access is denied, and return the error about it."""
        name = self._site.behaviour.denied
        if not (name and isinstance(order, dict) and name in order):
            return {}
        order[name] = None
        error = _error(f"Access denied for {name} field.", "ACCESS_DENIED")
        return {"errors": [{**error, "path": ["order", name]}]}

    def _root(self) -> Document:
        return {
            "order": lambda arguments: self._one(arguments.get("id")),
            "node": lambda arguments: self._one(arguments.get("id")),
            "nodes": lambda arguments: [self._one(one) for one in arguments.get("ids") or ()],
            "orders": self._orders,
            "ordersCount": lambda arguments: {"count": len(self._found(arguments)), "precision": "EXACT"},
            "shop": {"name": "Simulated", "myshopifyDomain": "simulated.myshopify.com", "currencyCode": "EUR"},
        }

    def _one(self, gid: Any) -> Document | None:
        if not isinstance(gid, str) or not gid.startswith("gid://shopify/"):
            raise QueryError(f"Invalid global id '{gid}'", "argumentLiteralsIncompatible")
        order = self._views.fetch(self.number(gid.removeprefix(_GID))) if gid.startswith(_GID) else None
        return None if order is None else order_tree(order)

    def _orders(self, arguments: Arguments) -> Connection:
        found = self._found(arguments)
        key, is_reversed = _sort_key(arguments), bool(arguments.get("reverse"))

        def position(order: ShopOrder) -> tuple[str, int]:
            return key(order).isoformat(), order.number

        def after(orders: Sequence[ShopOrder], cursor: str) -> Sequence[ShopOrder]:
            *at, _ = msgspec.json.decode(urlsafe_b64decode(cursor), type=tuple[str, int, str])
            return [
                order for order in orders if (position(order) < (*at,) if is_reversed else position(order) > (*at,))
            ]

        def write_cursor(_index: int, order: ShopOrder) -> str:
            return urlsafe_b64encode(msgspec.json.encode((*position(order), self._views.new_cursor()))).decode()

        def render(order: ShopOrder) -> Document:
            self._shown.append(order)
            return order_tree(order)

        def page(orders: Sequence[ShopOrder], start: int, size: int) -> ListPage[ShopOrder]:
            return self._views.page(orders, start, self._views.size(size))

        return Connection(found, write_cursor, after, render, page)

    def _found(self, arguments: Arguments) -> list[ShopOrder]:
        orders = self._views.listed(None)
        try:
            for name, sign, *values in _TERM.findall(arguments.get("query") or ""):
                # As in Shopify, terms that it does not know change nothing.
                key = _SORT_KEYS.get(name.upper())
                moment = read_time(next(filter(None, values), "")) if key is not None else None
                if key is not None and moment is not None:
                    orders = [order for order in orders if _COMPARISONS[sign](key(order), moment)]
        except ValueError:
            raise QueryError("Invalid search field value", "BAD_REQUEST") from None
        key = _sort_key(arguments)
        return sorted(orders, key=lambda order: (key(order), order.number), reverse=bool(arguments.get("reverse")))


def _sort_key(arguments: Arguments) -> Callable[[ShopOrder], datetime]:
    name = arguments.get("sortKey") or "PROCESSED_AT"
    if name not in _SORT_KEYS:
        raise QueryError(f"Argument 'sortKey' has an invalid value ({name})", "argumentLiteralsIncompatible")
    return _SORT_KEYS[name]


def _error(message: str, code: str, **extensions: str) -> Document:
    return {"message": message, "extensions": {"code": code, **extensions}}


def _cost(bucket: Bucket, requested: float, actual: float | None) -> Document:
    status = {
        "maximumAvailable": bucket.size,
        "currentlyAvailable": int(bucket.available),
        "restoreRate": bucket.rate,
    }
    cost = {"requestedQueryCost": round(requested), "actualQueryCost": None if actual is None else round(actual)}
    return {"cost": {**cost, "throttleStatus": status}}
