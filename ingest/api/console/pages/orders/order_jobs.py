"""Fetches or remaps the stored orders of a filter by a job, after a preview."""

import asyncio
from collections.abc import Sequence
from functools import partial

from aiohttp import web

from ingest.api.console.frame import ROOT, Page, Visit
from ingest.api.console.inputs import count_in, inputs_of, number_in, source_in
from ingest.api.console.pages.orders.chosen_orders import choose_source, described, filter_in, values_of
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
            Page(method, _path_of(kind), partial(respond, kind), kind.action)
            for kind in (JobKind.ENQUEUE, JobKind.REMAP)
            for method, respond in (("GET", self._preview), ("POST", self._start))
        ]

    async def _preview(self, kind: JobKind, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        selection = filter_in(form)
        names = visit.permitted(sorted(self._sources))
        values = values_of(selection)
        if len(names) > 1 and not form.text("source"):
            return choose_source(self._frame, visit, _path_of(kind), names, selection)
        source = source_in(visit, form, self._sources)
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

    async def _start(self, kind: JobKind, visit: Visit) -> web.StreamResponse:
        source = source_in(visit, visit.form, self._sources)
        total = count_in(visit.form, "total", "Total", 0, 10**12)
        rate = number_in(visit.form, "rate", "Limit", 0.001, 1_000_000)
        request = order_request(kind, filter_in(visit.form), total=total, rate=rate)
        connections = self._sources[source]
        added = await operations.start(connections.jobs, request, visit.caller.name)
        self._parts.runs.look()
        return self._frame.redirect(visit, url("/jobs/show", id=added.id))


def _path_of(kind: JobKind) -> str:
    return "/orders/remap" if kind is JobKind.REMAP else "/orders/enqueue"
