"""The polling and the backfills of a source, and the start of a backfill after a preview."""

from collections.abc import Sequence
from datetime import UTC, datetime

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import cursor_in, inputs_of, invalid, number_in, source_in, time_in, time_value
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.parameters import cursor_of
from ingest.api.http.problems import failure
from ingest.domain.operating.backfill import BackfillRequest, InvalidPeriod
from ingest.domain.operating.jobs import JobKind
from ingest.operations import jobs as operations
from ingest.operations.jobs.shown import shown_backfill
from ingest.store.jobs import Jobs
from ingest.store.polls import read_polls

_LIMIT = 50


class BackfillingPages(Pages):
    """`/console/sources/backfills` and the start of a backfill."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/sources/backfills", self._show, "backfills.list"),
            Page("GET", "/sources/backfills/start", self._preview, "backfills.start"),
            Page("POST", "/sources/backfills/start", self._start, "backfills.start"),
        ]

    async def _show(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source = source_in(visit, form, self._parts.settings_of)
        before = cursor_in(form, int)
        settings = self._parts.settings_of[source]
        found = await Jobs(self._access.pool, source).newest(_LIMIT + 1, before, [JobKind.BACKFILL])
        poll = (await read_polls(self._access.pool, [source])).get(source)
        path = "/console/sources/backfills"
        return self._frame.render(
            visit,
            "backfilling/show.html",
            source=source,
            has_list=settings.order_list is not None,
            every=settings.poll,
            poll=poll,
            backfills=[shown_backfill(each) for each in found[:_LIMIT]],
            first=url(path, source=source) if before else None,
            next=url(path, source=source, cursor=cursor_of(found[_LIMIT - 1].id)) if len(found) > _LIMIT else None,
        )

    async def _preview(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        source = source_in(visit, form, self._parts.settings_of)
        self._require_list(source)
        request = _request(form)
        unfinished = await Jobs(self._access.pool, source).unfinished_backfill()
        values = {
            "source": source,
            "since": time_value(request.since),
            "until": time_value(request.end),
            "rate": request.rate,
            "dry_run": "1" if request.dry_run else None,
        }
        return self._frame.render(
            visit, "backfilling/start.html", source=source, request=request, values=values, unfinished=unfinished
        )

    async def _start(self, visit: Visit) -> web.StreamResponse:
        source = source_in(visit, visit.form, self._parts.settings_of)
        self._require_list(source)
        request, jobs = _request(visit.form), Jobs(self._access.pool, source)
        try:
            added = await operations.start(jobs, request.as_job(), visit.caller.name)
        except operations.UnfinishedBackfill as error:
            path = url("/jobs/show", id=error.job)
            return self._frame.redirect(visit, path, "This backfill of the source is unfinished.", is_error=True)
        return self._frame.redirect(visit, url("/jobs/show", id=added.id), "The backfill waits for a worker process.")

    def _require_list(self, source: str) -> None:
        if self._parts.settings_of[source].order_list is None:
            raise failure("no_list", "no list of orders is configured for this source")


def _request(form: Form) -> BackfillRequest:
    since = time_in(form, "since", "From")
    if since is None:
        raise invalid("From", "enter the start of the period")
    until, rate = time_in(form, "until", "Until"), number_in(form, "rate", "Rate", 0.001, 1_000_000)
    try:
        return BackfillRequest.within(since, until, datetime.now(UTC), rate=rate, dry_run=form.has("dry_run"))
    except InvalidPeriod as error:
        raise invalid("Period", str(error)) from error
