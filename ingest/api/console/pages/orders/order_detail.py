"""One order, with its state, its stored values, its history, and its raw document."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from aiohttp import web

from ingest.api.console.frame import HEADERS, ROOT, Page, Visit
from ingest.api.console.inputs import cursor_in, inputs_of, order_id_in, source_in, sources_in
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.parameters import cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import STATE, while_connected
from ingest.domain.orders.order_state import OrderState
from ingest.operations.audit import record_read
from ingest.operations.declared import READ_DOCUMENT

_EVENTS = 50
_LINES = 200
_LONGEST_SHOWN = 256 * 1024
_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class OrderDetailPages(Pages):
    """`/console/orders/show` and `/console/orders/document`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/orders/show", self._show, "orders.show"),
            Page("GET", "/orders/document", self._document, "orders.read", is_large=True),
        ]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        order_id = order_id_in(form)
        before = cursor_in(form, datetime)
        names = sources_in(visit, form, self._sources)
        hold = visit.request[STATE].hold_large
        locating = asyncio.gather(*(self._sources[name].orders.locate(order_id, hold) for name in names))
        states = await while_connected(visit.request, locating)
        known = [state for state in states if state.is_known]
        if len(known) != 1:
            return self._several(visit, order_id, names, known or [each for each in states if not each.searched])
        [state] = known
        history = await self._sources[state.source].orders.history(order_id, before, _EVENTS)
        about = {"source": state.source, "id": order_id}
        path = f"{ROOT}/orders/show"
        return self._frame.render(
            visit,
            "orders/show.html",
            state=state,
            order=None if state.row is None else _order(visit, state.row),
            history=history,
            first=url(path, **about) if before else None,
            next=url(path, **about, cursor=cursor_of(history.before)) if history.before else None,
        )

    def _several(
        self, visit: Visit, order_id: str, names: Sequence[str], states: Sequence[OrderState]
    ) -> web.StreamResponse:
        """Return the choice of a source whose orders may include this one."""
        status = 200 if states else 404
        return self._frame.render(visit, "orders/several.html", status, order_id=order_id, names=names, states=states)

    async def _document(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        order_id, source = order_id_in(form), source_in(visit, form, self._sources)
        document = await self._sources[source].orders.document(order_id)
        if document is None:
            detail = "no document of this order is stored: set INGEST_KEEP_DOCUMENT to keep the documents of new orders"
            raise Problem(404, "no_document", detail)
        recorded = {"ids": [order_id]}
        audit_log = self._sources[source].audit_log
        await record_read([audit_log], reader_of(visit.request, visit.caller), READ_DOCUMENT, recorded)
        if form.has("download"):
            headers = {**HEADERS, "Content-Disposition": 'attachment; filename="order.json"'}
            return web.Response(body=document, content_type="application/json", headers=headers)
        shown = msgspec.json.format(document, indent=2).decode()
        return self._frame.render(
            visit,
            "orders/document.html",
            source=source,
            order_id=order_id,
            size=len(document),
            text=shown[:_LONGEST_SHOWN],
            is_cut=len(shown) > _LONGEST_SHOWN,
        )


def _order(visit: Visit, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values of an order. Its lines and attributes are decoded."""
    order = visit.caller.sees.order(found["order"])
    lines, attributes = _decode(order["lines"]), order["attributes"]
    if isinstance(attributes, msgspec.Raw):
        attributes = _decode(attributes)
    return {
        **order,
        "row": found["row"],
        "lines": lines[:_LINES],
        "line_count": len(lines),
        "attributes": [(name, _text(value)) for name, value in itertools.islice(attributes.items(), _LINES)],
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()
