"""Has workers preview which fields a fetch would change, and fetches the previewed orders again."""

from collections.abc import Sequence

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import count_in, job_id_in, number_in, source_in
from ingest.api.console.pages.orders.chosen_orders import filter_in
from ingest.api.console.pages.orders.order_changes import ids_in
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.problems import Problem
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order_filter import OrderFilter, order_filter_of
from ingest.operations import jobs as operations
from ingest.operations.jobs.orders import MOST_SAMPLE, USUAL_SAMPLE, order_request, preview_request
from ingest.operations.rebuilding.refetch import refetch
from ingest.store.jobs import find_job


class OrderPreviewPages(Pages):
    """`/console/orders/preview` and the page below it. The page of the job shows the preview."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("POST", "/orders/preview", self._preview, "orders.preview"),
            Page("POST", "/orders/preview/refetch", self._refetch, "orders.enqueue"),
        ]

    async def _preview(self, visit: Visit) -> web.StreamResponse:
        connections = self._sources[source_in(visit, visit.form, self._sources)]
        sample = count_in(visit.form, "sample", "Sample", 1, MOST_SAMPLE) or USUAL_SAMPLE
        request = preview_request(_selection_in(visit.form), sample)
        added = await operations.start(connections.jobs, request, visit.caller.name)
        return self._frame.redirect(visit, url("/jobs/show", id=added.id))

    async def _refetch(self, visit: Visit) -> web.StreamResponse:
        """Fetch the orders of a preview again, by its selection, which a form might not repeat exactly."""
        names = visit.permitted(sorted(self._sources))
        job = await find_job(self._access.pool, names, job_id_in(visit.form))
        if job is None or job.kind is not JobKind.PREVIEW:
            raise Problem(404, "no_such_job", "there is no such preview")
        selection = order_filter_of(job.request.selection)
        if selection.ids:
            await refetch(self._access.sources[job.source], selection.ids, visit.caller.name)
            count = len(selection.ids)
            message = f"Enqueued {count:,} order{'' if count == 1 else 's'} in the express lane."
            return self._frame.redirect(visit, url("/jobs/show", id=job.id), message)
        connections = self._sources[job.source]
        rate = number_in(visit.form, "rate", "Limit", 0.001, 1_000_000)
        preview = await connections.jobs.result(job.id)
        total = None if preview is None else preview.count
        request = order_request(JobKind.ENQUEUE, selection, total=total, rate=rate)
        added = await operations.start(connections.jobs, request, visit.caller.name)
        self._parts.runs.look()
        return self._frame.redirect(visit, url("/jobs/show", id=added.id))


def _selection_in(form: Form) -> OrderFilter:
    if form.has("id") or form.has("ids"):
        return OrderFilter(ids=tuple(ids_in(form)))
    return filter_in(form)
