"""The jobs of all sources with their progress, and their cancellation and resumption."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from ingest.api.console.frame import HEADERS, ROOT, Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, job_id_in, sources_in
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.failures import as_problems
from ingest.api.http.parameters import cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.reading import reader_of
from ingest.api.operations.job_routes import output_response
from ingest.domain.errors import UserError
from ingest.domain.operating.jobs import Job, JobKind
from ingest.operations import jobs as operations
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs, find_job, newest_jobs

_PATH = f"{ROOT}/jobs"
_LIMIT = 50
_IS_READ = web.RequestKey("preview_is_read", bool)
NAMES = {
    JobKind.BACKFILL: "Backfill",
    JobKind.REPLAY: "Replay dead letters",
    JobKind.DROP: "Drop dead letters",
    JobKind.EXPORT: "Export dead letters",
    JobKind.RUN_NOW: "Run retries now",
    JobKind.DEAD_LETTER: "Dead-letter retries",
    JobKind.ENQUEUE: "Fetch orders again",
    JobKind.REMAP: "Remap orders",
    JobKind.PREVIEW: "Preview a fetch of orders",
}


class JobPages(Pages):
    """`/console/jobs` and the pages below it."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            self._live.page("jobs", "/jobs", "jobs/list", self._list_model, "jobs.list"),
            self._live.page("job", "/jobs/show", "jobs/show", self._job_model, "jobs.show", is_large=True),
            Page("GET", "/jobs/output", self._output, "jobs.download"),
            Page("POST", "/jobs/cancel", self._cancel, "jobs.cancel"),
            Page("POST", "/jobs/resume", self._resume, "jobs.resume"),
        ]

    async def _list_model(self, visit: Visit) -> dict[str, Any]:
        form = inputs_of(visit)
        names = sources_in(visit, form, self._access.sources)
        before = cursor_in(form, int)
        found = await newest_jobs(self._access.pool, names, _LIMIT + 1, before)
        chosen = {"source": form.text("source") or None}
        return {
            "choices": choices_of(visit.permitted(sorted(self._access.sources))),
            "chosen": form.text("source"),
            "jobs": found[:_LIMIT],
            "names": NAMES,
            "stream": url(f"{ROOT}/events/jobs", **chosen, cursor=form.text("cursor") or None),
            "first": url(_PATH, **chosen) if before else None,
            "next": url(_PATH, **chosen, cursor=cursor_of(found[_LIMIT - 1].id)) if len(found) > _LIMIT else None,
        }

    async def _job_model(self, visit: Visit) -> dict[str, Any]:
        job = await self._job(visit)
        # A stream calls this once a second, and is one read.
        reader = None if _IS_READ in visit.request else reader_of(visit.request, visit.caller)
        preview = await operations.preview_result(Jobs(self._access.pool, job.source), job, reader)
        output = JobOutput(self._access.pool, job.source)
        # A stream, which shows each second of an unfinished job, does not compare thousands of rows.
        rows = None if job.is_unfinished else await operations.refetched_rows(output, job)
        if preview is not None:
            visit.request[_IS_READ] = True
        has_file = job.output_until is not None and job.output_until > datetime.now(UTC)
        return {
            "job": job,
            "selection": visit.caller.sees.selection(job.request.selection),
            "names": NAMES,
            "preview": visit.caller.sees.preview(preview),
            "has_file": has_file,
            "rows": rows,
        }

    async def _output(self, visit: Visit) -> web.StreamResponse:
        job = await self._job(visit)
        output, audit_log = JobOutput(self._access.pool, job.source), self._access.audit_log(job.source)
        return await output_response(visit.request, visit.caller, job, output, audit_log, HEADERS)

    async def _cancel(self, visit: Visit) -> web.StreamResponse:
        return await self._change(visit, operations.cancel, "The job is cancelled. Changes that it has made stay.")

    async def _resume(self, visit: Visit) -> web.StreamResponse:
        message = "The job continues from where it stopped as soon as a process takes it."
        return await self._change(visit, operations.resume, message)

    async def _change(
        self, visit: Visit, change: Callable[[Jobs, Job, str], Awaitable[Job]], message: str
    ) -> web.StreamResponse:
        job, is_error = await self._job(visit), False
        try:
            with as_problems():
                await change(Jobs(self._access.pool, job.source), job, visit.caller.name)
        except UserError as error:
            message, is_error = str(error), True
        return self._frame.redirect(visit, url("/jobs/show", id=job.id), message, is_error=is_error)

    async def _job(self, visit: Visit) -> Job:
        names = visit.permitted(sorted(self._access.sources))
        found = await find_job(self._access.pool, names, job_id_in(inputs_of(visit)))
        if found is None:
            raise Problem(404, "no_such_job", "there is no such job")
        return found
