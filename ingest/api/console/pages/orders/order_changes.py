"""Fetches orders again and erases orders, each after a preview that shows which orders it concerns."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import ROOT, Page, Visit
from ingest.api.console.inputs import inputs_of, invalid, source_in
from ingest.api.console.pages.orders.chosen_orders import choose_source, filter_in
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.problems import Problem
from ingest.api.http.requests import STATE
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_filter import OrderPosition
from ingest.operations.rebuilding.refetch import refetch
from ingest.operations.stored_orders.orders import erase

MOST_ORDERS = 1_000
# Their states are shown. Searching for more would make the page slow.
_SHOWN = 50


class OrderChangePages(Pages):
    """`/console/orders/refetch` and `/console/orders/erase`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/orders/refetch", self._preview_refetch, "orders.refetch"),
            Page("POST", "/orders/refetch", self._refetch, "orders.refetch"),
            Page("GET", "/orders/erase", self._choose_erased, "orders.erase"),
            # The IDs may be too many for an address. This changes nothing.
            Page("POST", "/orders/erase/preview", self._preview_erase, "orders.erase"),
            Page("POST", "/orders/erase", self._erase, "orders.erase"),
        ]

    async def _preview_refetch(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        return await self._preview(visit, "orders/refetch.html", source_in(visit, form, self._sources), ids_in(form))

    async def _refetch(self, visit: Visit) -> web.StreamResponse:
        source, ids = source_in(visit, visit.form, self._sources), ids_in(visit.form)
        await refetch(self._access.sources[source], ids, visit.caller.name)
        return self._frame.redirect(visit, _path_of(source, ids), f"Enqueued {_counted(ids)} in the express lane.")

    async def _choose_erased(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        names = visit.permitted(sorted(self._sources))
        if form.has("id"):
            return await self._preview(visit, "orders/erase.html", source_in(visit, form, self._sources), ids_in(form))
        selection = filter_in(form)
        if not selection.is_everything and (len(names) == 1 or form.text("source")):
            source = source_in(visit, form, self._sources)
            rows = await self._sources[source].orders.page(selection, OrderPosition(), MOST_ORDERS + 1)
            ids = [row["order"]["id"] for row in rows]
            return await self._preview(
                visit, "orders/erase.html", source, ids[:MOST_ORDERS], has_more=len(ids) > MOST_ORDERS
            )
        if selection.is_everything:
            choices = [(name, name) for name in names] if len(names) > 1 else []
            return self._frame.render(visit, "orders/choose_erased.html", choices=choices)
        return choose_source(self._frame, visit, "/orders/erase", names, selection)

    async def _preview_erase(self, visit: Visit) -> web.StreamResponse:
        source = source_in(visit, visit.form, self._sources)
        return await self._preview(visit, "orders/erase.html", source, ids_in(visit.form))

    async def _erase(self, visit: Visit) -> web.StreamResponse:
        source, ids = source_in(visit, visit.form, self._sources), ids_in(visit.form)
        erased = await erase(self._access.sources[source], ids, visit.caller.name)
        removed = f"{erased.rows:,} rows, {erased.retries:,} retries and {erased.dead_letters:,} dead letters"
        return self._frame.redirect(
            visit, _path_of(source, ids), f"Erased {_counted(ids)} for good: removed {removed}."
        )

    async def _preview(
        self, visit: Visit, template: str, source: str, ids: Sequence[str], *, has_more: bool = False
    ) -> web.StreamResponse:
        orders, hold = self._sources[source].orders, visit.request[STATE].hold_large
        states = await asyncio.gather(*(orders.locate(order_id, hold) for order_id in ids[:_SHOWN]))
        cancel = url(f"{ROOT}/orders/show", source=source, id=ids[0]) if len(ids) == 1 else f"{ROOT}/orders"
        return self._frame.render(
            visit, template, source=source, ids=ids, states=states, has_more=has_more, most=MOST_ORDERS, cancel=cancel
        )


def ids_in(form: Form) -> list[str]:
    """Return the order IDs in the fields `id`, or in the lines of the field `ids`."""
    lines = [line.strip() for line in form.text("ids").splitlines()]
    given = [*form.texts("id"), *(line for line in lines if line)]
    if not given:
        raise invalid("Order IDs", "enter at least one")
    if len(given) > MOST_ORDERS:
        raise invalid("Order IDs", f"at most {MOST_ORDERS:,} at a time")
    try:
        return [*dict.fromkeys(parse_order_id(text) for text in given)]
    except InvalidOrderId as error:
        raise Problem(422, "invalid_order_id", str(error)) from error


def _path_of(source: str, ids: Sequence[str]) -> str:
    return url("/orders/show", source=source, id=ids[0]) if len(ids) == 1 else "/orders"


def _counted(ids: Sequence[str]) -> str:
    return "1 order" if len(ids) == 1 else f"{len(ids):,} orders"
