"""Routes that start, list, show, cancel and resume jobs. Processes of the HTTP API run them, and workers run previews."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.downloads import download
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters, cursor_of, is_number
from ingest.api.http.problems import Problem, failure
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.job_body import JobBody
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import Job, JobKind, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.audit import record_read
from ingest.operations.declared import DOWNLOAD
from ingest.operations.failed_orders.dead_letter_export import FORMATS
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.jobs.export import FORMAT
from ingest.operations.jobs.orders import USUAL_SAMPLE, order_request, preview_request
from ingest.operations.jobs.requests import entry_request
from ingest.operations.jobs.shown import JobList, JobWithResult, ShownJob, shown, shown_with
from ingest.store.audit import AuditLog
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

_LIMIT, _MOST = 100, 500
_BeforeJob = Annotated[int, msgspec.Meta(ge=1, lt=10**18)]
_UNKNOWN = "job_not_found", "there is no job with this number"
_Change = Callable[[Jobs, Job, str], Awaitable[Job]]


_ID = Parameter("job", "path", "The number of the job.", {"type": "integer", "minimum": 1}, is_required=True)

_PAGE = Documentation(text="Including backfills, the newest first.", parameters=paging(500), schema=JobList)
_START = Documentation(
    text="Changes or exports many dead letters, or changes many retries or stored orders. See the pages on dead letters and on finding orders. A process of the HTTP API begins within seconds, and "
    "another one continues if that process dies. A worker of the source runs a preview, which changes nothing. The audit log records the request and the changes.",
    bodies={JSON: JobBody},
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
    problems={
        422: "The body does not select anything, or contradicts itself. To select everything, set `everything`. "
        "An export does not accept `ids`."
    },
)
_SHOW = Documentation(
    text="With its progress, which is recorded once a second, and its result. The audit log records who reads the result of a preview.",
    parameters=[_ID],
    schema=JobWithResult,
)
_OUTPUT = Documentation(
    text="The file of a job of the kind `dead_letters.export` that is done. It is deleted 7 days after the end of the job.",
    parameters=[_ID],
    response="JSON lines or CSV.",
    schema=None,
    others=dict.fromkeys(FORMATS.values(), TEXT),
)
_CANCEL = Documentation(
    text="Changes that it has made stay.",
    parameters=[_ID],
    response="The job is cancelled. Its process stops within seconds.",
    schema=ShownJob,
)
_RESUME = Documentation(
    text="Continues a cancelled or failed job from where it has ended. A waiting job keeps waiting.",
    parameters=[_ID],
    status=202,
    response="The job waits for a process.",
    schema=ShownJob,
)


class LooksForJobs(Protocol):
    """Runs the jobs that wait."""

    def look(self) -> None:
        """Look for waiting jobs now."""


@dataclass(frozen=True, slots=True)
class JobRoutes:
    """`/v1/jobs` and the routes below it.

    Attributes:
        entries: The entries of the source that jobs may select.
        jobs: The jobs of the source.
        limits: The limits of bodies.
        runs: Run the jobs that were requested here.
        output: The files of the jobs.
    """

    entries: Mapping[EntryKind, FailedEntries]
    jobs: Jobs
    limits: BodyLimits
    runs: LooksForJobs
    output: JobOutput

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/jobs", "jobs.list", self.page, _PAGE),
            Route("POST", "/v1/jobs", "jobs.start", self.start, _START),
            Route("GET", "/v1/jobs/{job}", "jobs.show", self.show, _SHOW, is_large=True),
            Route("GET", "/v1/jobs/{job}/output", "jobs.download", self.download, _OUTPUT),
            Route("POST", "/v1/jobs/{job}/cancel", "jobs.cancel", self.cancel, _CANCEL),
            Route("POST", "/v1/jobs/{job}/resume", "jobs.resume", self.resume, _RESUME),
        ]

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """The next jobs, the newest first."""
        found, next_cursor = await page_of(self.jobs, request)
        return json_response(JobList([shown(each, caller.sees) for each in found], next_cursor))

    async def start(self, request: web.Request, caller: Caller) -> web.Response:
        """Add a job that waits for a process."""
        body = await json_body(request, self.limits, JobBody)
        wanted = await self._request(body)
        added = await operations.start(self.jobs, wanted, caller.name)
        self.runs.look()
        return json_response(shown(added, caller.sees), 202)

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """One job with its progress and its result."""
        found = await self._found(request)
        result = await operations.preview_result(self.jobs, found, reader_of(request, caller))
        rows = await operations.refetched_rows(self.output, found)
        return json_response(shown_with(result, rows, found, caller.sees))

    async def download(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """The file of an export."""
        return await output_response(request, caller, await self._found(request), self.output, self.jobs.audit_log, {})

    async def cancel(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel an unfinished job."""
        cancelled = await self._changed(operations.cancel, request, caller)
        return json_response(shown(cancelled, caller.sees))

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a cancelled or failed job wait for a process again."""
        resumed = await self._changed(operations.resume, request, caller)
        self.runs.look()
        return json_response(shown(resumed, caller.sees), 202)

    async def _request(self, body: JobBody) -> JobRequest:
        kind = JobKind(body.kind)
        if body.format is not None and kind is not JobKind.EXPORT:
            raise Problem(422, "invalid_body", f"a job of the kind {kind} has no format")
        if body.sample is not None and kind is not JobKind.PREVIEW:
            raise Problem(422, "invalid_body", f"a job of the kind {kind} has no sample")
        if kind.entries is not None:
            entries, selection = self.entries[kind.entries], body.entries().selection()
            return await entry_request(entries, kind, selection, rate=body.rate, file_format=body.format)
        if kind is JobKind.PREVIEW:
            if body.rate is not None:
                raise Problem(422, "invalid_body", f"a job of the kind {kind} has no rate")
            return preview_request(body.stored_orders(), body.sample or USUAL_SAMPLE)
        return order_request(kind, body.stored_orders(), rate=body.rate)

    async def _found(self, request: web.Request) -> Job:
        return await job_in(self.jobs, request, "job", _UNKNOWN)

    async def _changed(self, change: _Change, request: web.Request, caller: Caller) -> Job:
        found = await self._found(request)
        if found.kind is JobKind.BACKFILL and change is operations.resume:
            raise failure("job_state", f"the job {found.id} is a backfill: use `/v1/backfills/{found.id}/resume`")
        try:
            return await change(self.jobs, found, caller.name)
        except operations.ImpossibleChange as error:
            raise failure("job_state", str(error)) from error


async def page_of(
    jobs: Jobs, request: web.Request, kinds: Collection[JobKind] = tuple(JobKind)
) -> tuple[Sequence[Job], str | None]:
    """Return the jobs of the page that is requested, the newest first, and the cursor of the next page."""
    given = Parameters(request, ("limit", "cursor"))
    limit, before = given.limit(_LIMIT, _MOST), given.cursor(_BeforeJob)
    found = await jobs.newest(limit + 1, before, kinds)
    return found[:limit], cursor_of(found[limit - 1].id) if len(found) > limit else None


def number(request: web.Request, name: str, unknown: tuple[str, str]) -> int:
    """Return the number in the path. Raises the failure of an unknown one if it is no number."""
    text = request.match_info[name]
    if not is_number(text):
        raise failure(*unknown)
    return int(text)


async def job_in(
    jobs: Jobs, request: web.Request, name: str, unknown: tuple[str, str], kinds: Collection[JobKind] = tuple(JobKind)
) -> Job:
    """Return the job of these kinds with the number in the path. Raises the failure of an unknown one."""
    Parameters(request, ())
    found = await jobs.get(number(request, name, unknown))
    if found is None or found.kind not in kinds:
        raise failure(*unknown)
    return found


async def output_response(
    request: web.Request, caller: Caller, job: Job, output: JobOutput, audit_log: AuditLog, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send the file of a job with further headers, and record who reads it.

    Raises:
        Problem: 409 if the job has no complete file, or 410 if the file was deleted.
    """
    if job.output_until is None:
        raise failure("job_state", f"the job {job.id} has no file: only an export that is done has one")
    count, _ = await output.parts(job.id)
    if not count or job.output_until <= datetime.now(UTC):
        raise failure("job_output_expired", "the file was deleted: start another export")
    file_format = job.request.selection[FORMAT]
    name = f"dead-letters-{job.id}.{file_format}"
    await record_read([audit_log], reader_of(request, caller), DOWNLOAD, {"id": job.id})
    return await download(request, output.texts(job.id), name, FORMATS[file_format], headers)
