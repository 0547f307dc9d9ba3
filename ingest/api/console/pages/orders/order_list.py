"""The list of stored orders, filtered, page by page."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from ingest.api.console.frame import ROOT, Frame, Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, sources_in
from ingest.api.console.pages.orders.chosen_orders import filter_in, values_of
from ingest.api.console.templating import url
from ingest.api.http.failures import as_problems
from ingest.api.http.parameters import cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.requests import while_connected
from ingest.api.source_connections import SourceConnections
from ingest.domain.orders.order_filter import OrderPosition
from ingest.operations.stored_orders.order_list import OrderPage, list_page

_PATH = f"{ROOT}/orders"
_LIMIT = 100


class _Position(NamedTuple):
    """An `OrderPosition` as cursors contain it."""

    order_id: str
    stored_at: Annotated[datetime, msgspec.Meta(tz=True)] | None


class OrderListPages:
    """`/console/orders`."""

    def __init__(self, frame: Frame, sources: Mapping[str, SourceConnections]) -> None:
        self._frame = frame
        self._sources = sources

    def pages(self) -> Sequence[Page]:
        """The pages."""
        return [Page("GET", "/orders", self._show, "orders.list")]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        names = sources_in(visit, form, self._sources)
        selection = filter_in(form)
        chosen = form.text("source")
        values = {"source": chosen or None, **values_of(selection)}
        after = _after(cursor_in(form, tuple[str, _Position]))
        readers = {name: self._sources[name].orders for name in names}
        problem = None
        try:
            with as_problems():
                found = await while_connected(visit.request, list_page(readers, selection, after, _LIMIT))
        except Problem as error:
            if error.code != "query_too_slow":
                raise
            found, problem = OrderPage([], None), error
        return self._frame.render(
            visit,
            "orders/list.html",
            200 if problem is None else problem.status,
            choices=choices_of(visit.permitted(sorted(self._sources))),
            chosen=chosen,
            filter=selection,
            values=values,
            rows=[_row(visit.caller.sees.row(each) or {}) for each in found.orders],
            problem=problem,
            first=url(_PATH, **values) if after else None,
            next=url(_PATH, **values, cursor=cursor_of(found.next)) if found.next else None,
        )


def _after(cursor: tuple[str, _Position] | None) -> tuple[str, OrderPosition] | None:
    if cursor is None:
        return None
    source, (order_id, stored_at) = cursor
    return source, OrderPosition(order_id, None if stored_at is None else stored_at.isoformat())


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of an order."""
    order, row = found["order"], found["row"]
    return {
        "source": found["source"],
        "id": order["id"],
        "status": order["status"],
        "total": order["total"],
        "currency": order["currency"],
        "customer": order["customer_id"],
        "placed_at": order["placed_at"],
        "updated_at": order["updated_at"],
        "stored_at": row["ingested_at"],
    }
