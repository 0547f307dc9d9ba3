"""Routes that start, list, show, cancel and resume jobs. Processes of the HTTP API run them, and workers run previews."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from ingest.api.documentation import job_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.problems import Problem, failure
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.job_body import JobBody
from ingest.api.operations.job_output import output_response
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import Job, JobKind, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.jobs.orders import USUAL_SAMPLE, order_request, preview_request
from ingest.operations.jobs.requests import entry_request
from ingest.operations.jobs.shown import JobList, shown, shown_with
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

_LIMIT, _MOST = 100, 500
_LONGEST_ID = 18
BeforeJob = Annotated[int, msgspec.Meta(ge=1, lt=10**_LONGEST_ID)]
_Change = Callable[[Jobs, Job, str], Awaitable[Job]]


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
            Route("GET", "/v1/jobs", "jobs.list", self.page, documentation.PAGE),
            Route("POST", "/v1/jobs", "jobs.start", self.start, documentation.START),
            Route("GET", "/v1/jobs/{job}", "jobs.show", self.show, documentation.SHOW, is_large=True),
            Route("GET", "/v1/jobs/{job}/output", "jobs.download", self.download, documentation.OUTPUT),
            Route("POST", "/v1/jobs/{job}/cancel", "jobs.cancel", self.cancel, documentation.CANCEL),
            Route("POST", "/v1/jobs/{job}/resume", "jobs.resume", self.resume, documentation.RESUME),
        ]

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """The next jobs, the newest first."""
        given = Parameters(request, ("limit", "cursor"))
        limit, before = given.limit(_LIMIT, _MOST), given.cursor(BeforeJob)
        with as_problems():
            found = await self.jobs.newest(limit + 1, before)
        next_cursor = cursor_of(found[limit - 1].id) if len(found) > limit else None
        return json_response(JobList([shown(each, caller.sees) for each in found[:limit]], next_cursor))

    async def start(self, request: web.Request, caller: Caller) -> web.Response:
        """Add a job that waits for a process."""
        body = await json_body(request, self.limits, JobBody)
        with as_problems():
            wanted = await self._request(body)
            added = await operations.start(self.jobs, wanted, caller.name)
        self.runs.look()
        return json_response(shown(added, caller.sees), 202)

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """One job with its progress and its result."""
        found = await self._found(request)
        with as_problems():
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
        Parameters(request, ())
        job = number(request, "job", _unknown)
        with as_problems():
            found = await self.jobs.get(job)
        if found is None:
            raise _unknown()
        return found

    async def _changed(self, change: _Change, request: web.Request, caller: Caller) -> Job:
        found = await self._found(request)
        if found.kind is JobKind.BACKFILL and change is operations.resume:
            raise failure("job_state", f"the job {found.id} is a backfill: use `/v1/backfills/{found.id}/resume`")
        with as_problems():
            try:
                return await change(self.jobs, found, caller.name)
            except operations.ImpossibleChange as error:
                raise failure("job_state", str(error)) from error


def number(request: web.Request, name: str, unknown: Callable[[], Problem]) -> int:
    """Return the number in the path. Raises the problem of an unknown one if it is no number."""
    text = request.match_info[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
        raise unknown()
    return int(text)


def _unknown() -> Problem:
    return failure("job_not_found", "there is no job with this number")
