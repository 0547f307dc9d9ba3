"""Routes that find one order wherever it is with its history, list stored orders, and erase an order."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

from ingest.api.documentation import operations_documentation as documentation
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of, invalid_cursor
from ingest.api.http.problems import Problem, failure
from ingest.api.http.requests import STATE, while_connected
from ingest.api.http.routing import Caller, Route
from ingest.api.orders.pushing import order_id_of
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_filter import CRITERIA, OrderFilter, OrderPosition
from ingest.operations.json_types import response_of
from ingest.operations.stored_orders.order_json import (
    ErasedOrder,
    HistoryList,
    ListedOrder,
    OrderList,
    RemovedEntries,
    shown,
)
from ingest.operations.stored_orders.order_list import position_of
from ingest.operations.stored_orders.orders import Orders

_LIMIT, _MOST = 100, 500


@dataclass(frozen=True, slots=True)
class OrderRoutes:
    """`GET` and `DELETE /v1/orders/{order_id}`, its history, and `GET /v1/orders`.

    Attributes:
        orders: Where they are.
    """

    orders: Orders

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/orders", "orders.list", self.page, documentation.PAGE),
            Route("GET", "/v1/orders/{order_id}", "orders.show", self.show, documentation.SHOW),
            Route("GET", "/v1/orders/{order_id}/history", "orders.history", self.history, documentation.HISTORY),
            Route("DELETE", "/v1/orders/{order_id}", "orders.erase", self.erase, documentation.ERASE),
        ]

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """An order with its ingestion state."""
        order_id = order_id_of(request)
        Parameters(request, ())
        state = await self.orders.locate(order_id, request[STATE].hold_large)
        if not state.is_known and state.searched:
            raise failure("order_not_found", "no such order is stored, queued, retried, dead or erased")
        return json_response(shown(state, caller.sees))

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """Stored orders that match, without lines and attributes."""
        given = Parameters(request, (*CRITERIA, "limit", "cursor"), ("attribute",))
        limit = given.limit(_LIMIT, _MOST)
        criteria: dict[str, Any] = {
            name: given.time(name) if each.is_time else given.text(name) for name, each in CRITERIA.items()
        }
        attributes = tuple(_attribute(text) for text in sorted(given.texts("attribute")))
        selection = OrderFilter(**criteria, attributes=attributes)
        after = _position(given.cursor(str | tuple[str, str]), selection)
        orders = await while_connected(request, self.orders.page(selection, after, limit + 1))
        next_cursor = None
        if len(orders) > limit:
            last = position_of(orders[limit - 1], selection)
            next_cursor = cursor_of(last.order_id if last.stored_at is None else tuple(last))
        listed = [ListedOrder(caller.sees.order(each["order"]), each["row"]) for each in orders[:limit]]
        return json_response(OrderList(listed, next_cursor))

    async def history(self, request: web.Request, _: Caller) -> web.Response:
        """The events of an order, the newest first."""
        order_id = order_id_of(request, "/history")
        given = Parameters(request, ("limit", "cursor"))
        before = _moment(given.cursor(str))
        found = await self.orders.history(order_id, before, given.limit(_LIMIT, _MOST))
        next_cursor = None if found.before is None else cursor_of(found.before.isoformat())
        return json_response(HistoryList([*found.entries], next_cursor))

    async def erase(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase an order permanently. It need not exist, and may have been erased before."""
        order_id = order_id_of(request)
        Parameters(request, ())
        erased = await self.orders.erase(order_id, caller.name)
        return json_response(ErasedOrder(order_id, response_of(RemovedEntries, erased)))


def _position(cursor: str | tuple[str, str] | None, selection: OrderFilter) -> OrderPosition:
    if cursor is None:
        return OrderPosition()
    position = OrderPosition(cursor) if isinstance(cursor, str) else OrderPosition(*cursor)
    if (position.stored_at is not None) is not selection.is_by_time:
        raise invalid_cursor()
    if position.stored_at is not None:
        _moment(position.stored_at)
    try:
        return position._replace(order_id=parse_order_id(position.order_id))
    except InvalidOrderId:
        raise invalid_cursor() from None


def _moment(cursor: str | None) -> datetime | None:
    if cursor is None:
        return None
    try:
        moment = datetime.fromisoformat(cursor)
    except ValueError:
        raise invalid_cursor() from None
    if moment.tzinfo is None:
        raise invalid_cursor()
    return moment


def _attribute(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise Problem(
            422, "invalid_parameter", "attribute: a name and a value, such as channel=web", parameter="attribute"
        )
    return name, value
