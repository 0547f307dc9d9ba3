"""Fetches or remaps the stored orders of a filter by a job, after a preview."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import ROOT, Page, Visit
from ingest.api.console.inputs import inputs_of, number_in, source_in
from ingest.api.console.pages.orders.chosen_orders import described, filter_in, values_of
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import while_connected
from ingest.domain.errors import StoreTooSlow
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order_filter import OrderFilter
from ingest.operations import jobs as operations
from ingest.operations.audit import record_read
from ingest.operations.declared import READ_DOCUMENT
from ingest.operations.jobs.orders import order_request
from ingest.operations.rebuilding.remap_preview import preview_remap

# Orders that a preview rebuilds from their documents.
_SAMPLE = 50
# Seconds that a page waits for the number of orders.
_COUNT_SECONDS = 0.3


class OrderJobPages(Pages):
    """`/console/orders/enqueue` and `/console/orders/remap`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/orders/enqueue", self._preview_enqueue, "orders.enqueue"),
            Page("POST", "/orders/enqueue", self._enqueue, "orders.enqueue"),
            Page("GET", "/orders/remap", self._preview_remap, "orders.remap"),
            Page("POST", "/orders/remap", self._remap, "orders.remap"),
        ]

    async def _preview_enqueue(self, visit: Visit) -> web.StreamResponse:
        return await self._preview(visit, JobKind.ENQUEUE)

    async def _preview_remap(self, visit: Visit) -> web.StreamResponse:
        return await self._preview(visit, JobKind.REMAP)

    async def _enqueue(self, visit: Visit) -> web.StreamResponse:
        return await self._start(visit, JobKind.ENQUEUE)

    async def _remap(self, visit: Visit) -> web.StreamResponse:
        return await self._start(visit, JobKind.REMAP)

    async def _preview(self, visit: Visit, kind: JobKind) -> web.StreamResponse:
        form = inputs_of(visit)
        selection = filter_in(form)
        names = visit.permitted(sorted(self._sources))
        values = values_of(selection)
        if len(names) > 1 and not form.text("source"):
            return self._frame.render(
                visit,
                "orders/choose_source.html",
                path=_path_of(kind),
                choices=[(name, name) for name in names],
                values=values,
                criteria=described(selection),
            )
        source = self._source_in(visit, form)
        total = await self._count(source, selection)
        report = None
        if kind is JobKind.REMAP:
            backends, decoder = self._access.sources[source], self._parts.decoders[source]
            previewing = preview_remap(backends, selection, decoder, sample=_SAMPLE)
            report = await while_connected(visit.request, previewing)
            audit_log, recorded = self._sources[source].audit_log, selection.as_object()
            await record_read([audit_log], reader_of(visit.request, visit.caller), READ_DOCUMENT, recorded)
        return self._frame.render(
            visit,
            "orders/job.html",
            path=_path_of(kind),
            is_remap=kind is JobKind.REMAP,
            source=source,
            criteria=described(selection),
            values={**values, "source": source},
            total=total,
            report=report,
            cancel=url(f"{ROOT}/orders", **values, source=source),
        )

    async def _count(self, source: str, selection: OrderFilter) -> int | None:
        try:
            async with asyncio.timeout(_COUNT_SECONDS):
                return await self._sources[source].orders.count(selection)
        except (TimeoutError, StoreTooSlow):
            return None

    async def _start(self, visit: Visit, kind: JobKind) -> web.StreamResponse:
        source = self._source_in(visit, visit.form)
        total = number_in(visit.form, "total", "Total", 0, 1e12)
        rate = number_in(visit.form, "rate", "Limit", 0.001, 1_000_000)
        request = order_request(kind, filter_in(visit.form), total=None if total is None else int(total), rate=rate)
        connections = self._sources[source]
        added = await operations.start(connections.jobs, request, visit.caller.name)
        self._parts.runs.look()
        return self._frame.redirect(visit, url("/jobs/show", id=added.id))

    def _source_in(self, visit: Visit, form: Form) -> str:
        return source_in(visit, form, self._sources)


def _path_of(kind: JobKind) -> str:
    return "/orders/remap" if kind is JobKind.REMAP else "/orders/enqueue"
