"""The list of stored orders, filtered, page by page, the newest first."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from aiohttp import web

from ingest.api.console.frame import ROOT, Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, sources_in
from ingest.api.console.pages.orders.chosen_orders import filter_in, values_of
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.failures import as_problems
from ingest.api.http.parameters import cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.requests import while_connected
from ingest.domain.orders.order_filter import OrderPlace

_PATH = f"{ROOT}/orders"
_LIMIT = 100


# As cursors contain an `OrderPlace`.
_Place = tuple[Annotated[datetime, msgspec.Meta(tz=True)], str, str]


class OrderListPages(Pages):
    """`/console/orders`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [Page("GET", "/orders", self._show, "orders.list")]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        names = sources_in(visit, form, self._sources)
        selection = filter_in(form)
        chosen = form.text("source")
        values = {"source": chosen or None, **values_of(selection)}
        before = cursor_in(form, _Place)
        found: list[dict[str, Any]] = []
        problem, is_by_time = None, True
        try:
            with as_problems():
                place = None if before is None else OrderPlace(*before)
                reading = self._sources[names[0]].orders.newest(names, selection, place, _LIMIT + 1)
                found, is_by_time = await while_connected(visit.request, reading)
        except Problem as error:
            if error.code != "query_too_slow":
                raise
            problem = error
        return self._frame.render(
            visit,
            "orders/list.html",
            200 if problem is None else problem.status,
            choices=choices_of(visit.permitted(sorted(self._sources))),
            chosen=chosen,
            filter=selection,
            values=values,
            rows=[_row(visit.caller.sees.row(each) or {}) for each in found[:_LIMIT]],
            problem=problem,
            is_by_time=is_by_time,
            first=url(_PATH, **values) if before else None,
            next=url(_PATH, **values, cursor=cursor_of(_place(found[_LIMIT - 1]))) if len(found) > _LIMIT else None,
        )


def _place(found: Mapping[str, Any]) -> OrderPlace:
    return OrderPlace(found["row"]["ingested_at"], found["source"], found["order"]["id"])


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
