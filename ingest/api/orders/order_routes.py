"""Routes that find one order wherever it is, list stored orders, and erase an order."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.documentation import operations_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of, invalid_cursor
from ingest.api.http.problems import Problem
from ingest.api.http.requests import while_connected
from ingest.api.http.routing import Caller, Route
from ingest.api.orders.pushing import order_id_of
from ingest.domain.api_key import Scope
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.operations.orders import Orders, as_object
from ingest.store.orders.order_reading import OrderFilter

_LIMIT, _MOST = 100, 500
_FILTERS = ("status", "country", "currency", "customer_id", "placed_from", "placed_to", "updated_from")


@dataclass(frozen=True, slots=True)
class OrderRoutes:
    """`GET` and `DELETE /v1/orders/{order_id}`, and `GET /v1/orders`.

    Attributes:
        orders: where they are.
    """

    orders: Orders

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/orders", Scope.READ, self.page, documentation.PAGE),
            Route("GET", "/v1/orders/{order_id}", Scope.READ, self.show, documentation.SHOW),
            Route("DELETE", "/v1/orders/{order_id}", Scope.ERASE, self.erase, documentation.ERASE),
        ]

    async def show(self, request: web.Request, _: Caller) -> web.Response:
        """An order with its ingestion state."""
        order_id = order_id_of(request)
        Parameters(request, ())
        with as_problems():
            state = await self.orders.locate(order_id)
        if not state.is_known and state.searched:
            raise Problem(404, "order_not_found", "no such order is stored, queued, retried, dead or erased")
        return json_response(as_object(state))

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """Stored orders that match, in the order of their IDs, without lines and attributes."""
        given = Parameters(request, (*_FILTERS, "limit", "cursor"))
        limit = given.limit(_LIMIT, _MOST)
        selection = OrderFilter(
            status=given.text("status"),
            country=given.text("country"),
            currency=given.text("currency"),
            customer_id=given.text("customer_id"),
            placed_from=given.time("placed_from"),
            placed_to=given.time("placed_to"),
            updated_from=given.time("updated_from"),
        )
        after = _order_id(given.cursor(str))
        with as_problems():
            orders = await while_connected(request, self.orders.page(selection, after, limit + 1))
        more = len(orders) > limit
        next_cursor = cursor_of(orders[limit - 1]["order"]["id"]) if more else None
        return json_response({"orders": orders[:limit], "next_cursor": next_cursor})

    async def erase(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase an order permanently. It need not exist, and may have been erased before."""
        order_id = order_id_of(request)
        Parameters(request, ())
        with as_problems():
            erased = await self.orders.erase(order_id, caller.name)
        removed = {"rows": erased.rows, "retries": erased.retries, "dead_letters": erased.dead_letters}
        return json_response({"order_id": order_id, "removed": removed})


def _order_id(cursor: str | None) -> str:
    if cursor is None:
        return ""
    try:
        return parse_order_id(cursor)
    except InvalidOrderId:
        raise invalid_cursor() from None
