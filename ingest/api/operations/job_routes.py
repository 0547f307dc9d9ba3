"""Routes that start, list, show, cancel and resume jobs. Processes of the HTTP API run them, and workers run previews."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from ingest.api.documentation import job_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.reading import reader_of
from ingest.api.http.requests import BodyLimits, decoded, read_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.job_body import JobBody
from ingest.api.operations.job_output import output_response
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.dead_letter import InvalidSelection
from ingest.domain.operating.jobs import Job, JobKind, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.jobs.orders import USUAL_SAMPLE, order_request, preview_request
from ingest.operations.jobs.requests import dead_letter_request, export_request, retry_request
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.retries import Retries
from ingest.store.audit import AuditLog
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

_LIMIT, _MOST = 100, 500
_LONGEST_ID = 18
_Before = Annotated[int, msgspec.Meta(ge=1, lt=10**_LONGEST_ID)]
_Change = Callable[[Jobs, AuditLog, int, str], Awaitable[Job]]


class LooksForJobs(Protocol):
    """Runs the jobs that wait."""

    def look(self) -> None:
        """Look for waiting jobs now."""


@dataclass(frozen=True, slots=True)
class JobRequestParts:
    """The entries that jobs may select.

    Attributes:
        dead_letters: The dead letters of the source.
        retries: The retries of the source.
    """

    dead_letters: DeadLetters
    retries: Retries

    async def request(self, body: JobBody) -> JobRequest:
        """Return the request for a job.

        Raises:
            Problem: 422 if the body contradicts itself.
            QueueUnavailable: Redis cannot be used right now.
        """
        kind = JobKind(body.kind)
        if body.format is not None and kind is not JobKind.EXPORT:
            raise Problem(422, "invalid_body", f"a job of the kind {kind} has no format")
        if body.sample is not None and kind is not JobKind.PREVIEW:
            raise Problem(422, "invalid_body", f"a job of the kind {kind} has no sample")
        if kind is JobKind.EXPORT:
            selection = body.entries().dead_letters()
            try:
                return await export_request(self.dead_letters, selection, body.format or "jsonl", rate=body.rate)
            except InvalidSelection as error:
                raise Problem(422, "invalid_selection", str(error)) from error
        if kind is JobKind.PREVIEW:
            if body.rate is not None:
                raise Problem(422, "invalid_body", f"a job of the kind {kind} has no rate")
            return preview_request(body.stored_orders(), body.sample or USUAL_SAMPLE)
        if kind.is_of_dead_letters:
            return await dead_letter_request(self.dead_letters, kind, body.entries().dead_letters(), rate=body.rate)
        if kind.is_of_retries:
            return await retry_request(self.retries, kind, body.entries().retries(), rate=body.rate)
        return order_request(kind, body.stored_orders(), rate=body.rate)


@dataclass(frozen=True, slots=True)
class JobRoutes:
    """`/v1/jobs` and the routes below it.

    Attributes:
        parts: Make requests.
        jobs: The jobs of the source.
        audit_log: Records changes.
        limits: The limits of bodies.
        runs: Run the jobs that were requested here.
        output: The files of the jobs.
    """

    parts: JobRequestParts
    jobs: Jobs
    audit_log: AuditLog
    limits: BodyLimits
    runs: LooksForJobs
    output: JobOutput

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/jobs", Scope.READ, self.page, documentation.PAGE),
            Route("POST", "/v1/jobs", Scope.OPERATE, self.start, documentation.START),
            Route("GET", "/v1/jobs/{job}", Scope.READ, self.show, documentation.SHOW, is_large=True),
            Route("GET", "/v1/jobs/{job}/output", Scope.READ, self.download, documentation.OUTPUT),
            Route("POST", "/v1/jobs/{job}/cancel", Scope.OPERATE, self.cancel, documentation.CANCEL),
            Route("POST", "/v1/jobs/{job}/resume", Scope.OPERATE, self.resume, documentation.RESUME),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next jobs, the newest first."""
        given = Parameters(request, ("limit", "cursor"))
        limit, before = given.limit(_LIMIT, _MOST), given.cursor(_Before)
        with as_problems():
            found = await self.jobs.newest(limit + 1, before)
        next_cursor = cursor_of(found[limit - 1].id) if len(found) > limit else None
        return json_response({"jobs": [each.as_dict() for each in found[:limit]], "next_cursor": next_cursor})

    async def start(self, request: web.Request, caller: Caller) -> web.Response:
        """Add a job that waits for a process."""
        Parameters(request, ())
        if request.content_type != JSON:
            raise Problem(415, "content_type", f"the body must be {JSON}")
        body = decoded(await read_body(request, self.limits), JobBody)
        with as_problems():
            wanted = await self.parts.request(body)
            added = await operations.start(self.jobs, self.audit_log, wanted, caller.name)
        self.runs.look()
        return json_response(added.as_dict(), 202)

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """One job with its progress, and the result of a preview."""
        found = await self._found(request)
        with as_problems():
            described = await operations.described(self.jobs, self.audit_log, found, reader_of(request, caller))
        return json_response(described)

    async def download(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """The file of an export."""
        return await output_response(request, caller, await self._found(request), self.output, self.audit_log, {})

    async def cancel(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel an unfinished job."""
        return json_response((await self._changed(operations.cancel, request, caller)).as_dict())

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a cancelled or failed job wait for a process again."""
        resumed = await self._changed(operations.resume, request, caller)
        self.runs.look()
        return json_response(resumed.as_dict(), 202)

    async def _found(self, request: web.Request) -> Job:
        Parameters(request, ())
        job = _job(request)
        with as_problems():
            found = await self.jobs.get(job)
        if found is None:
            raise _unknown()
        return found

    async def _changed(self, change: _Change, request: web.Request, caller: Caller) -> Job:
        Parameters(request, ())
        with as_problems():
            try:
                return await change(self.jobs, self.audit_log, _job(request), caller.name)
            except operations.NoSuchJob as error:
                if not error.exists:
                    raise _unknown() from error
                raise Problem(409, "job_state", str(error)) from error


def _job(request: web.Request) -> int:
    text = request.match_info["job"]
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
        raise _unknown()
    return int(text)


def _unknown() -> Problem:
    return Problem(404, "job_not_found", "there is no job with this number")
