"""Routes that start, list, show, cancel and resume backfills. Worker processes run them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from aiohttp import web

from ingest.api.documentation import backfill_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, decoded, read_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.backfill_body import BackfillBody
from ingest.domain.api_key import Scope
from ingest.domain.operating.backfill import Backfill
from ingest.operations import backfill as operations
from ingest.store.audit import AuditLog
from ingest.store.backfills import Backfills

_LIMIT, _MOST = 100, 500
_LONGEST_ID = 18
_Before = Annotated[int, msgspec.Meta(ge=1, lt=10**_LONGEST_ID)]
_Change = Callable[[Backfills, AuditLog, int, str], Awaitable[Backfill]]


@dataclass(frozen=True, slots=True)
class BackfillRoutes:
    """`/v1/backfills` and the routes below it.

    Attributes:
        backfills: The backfills of the source.
        audit_log: Records changes.
        limits: The limits of bodies.
        has_list: Whether the list of the shop is configured.
    """

    backfills: Backfills
    audit_log: AuditLog
    limits: BodyLimits
    has_list: bool

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/backfills", Scope.READ, self.page, documentation.PAGE),
            Route("POST", "/v1/backfills", Scope.OPERATE, self.start, documentation.START),
            Route("GET", "/v1/backfills/{backfill}", Scope.READ, self.show, documentation.SHOW),
            Route("DELETE", "/v1/backfills/{backfill}", Scope.OPERATE, self.cancel, documentation.CANCEL),
            Route("POST", "/v1/backfills/{backfill}/resume", Scope.OPERATE, self.resume, documentation.RESUME),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next backfills, the newest first."""
        given = Parameters(request, ("limit", "cursor"))
        limit, before = given.limit(_LIMIT, _MOST), given.cursor(_Before)
        with as_problems():
            found = await self.backfills.newest(limit + 1, before)
        next_cursor = cursor_of(found[limit - 1].id) if len(found) > limit else None
        return json_response({"backfills": [each.as_dict() for each in found[:limit]], "next_cursor": next_cursor})

    async def start(self, request: web.Request, caller: Caller) -> web.Response:
        """Add a backfill that waits for a worker process."""
        Parameters(request, ())
        if request.content_type != JSON:
            raise Problem(415, "content_type", f"the body must be {JSON}")
        body = decoded(await read_body(request, self.limits), BackfillBody)
        wanted = body.request(datetime.now(UTC))
        self._require_list()
        with as_problems():
            try:
                added = await operations.start(self.backfills, self.audit_log, wanted, caller.name)
            except operations.UnfinishedBackfill as error:
                raise _unfinished(error) from error
        return json_response(added.as_dict(), 202)

    async def show(self, request: web.Request, _: Caller) -> web.Response:
        """One backfill with its progress."""
        Parameters(request, ())
        job = _job(request)
        with as_problems():
            found = await self.backfills.get(job)
        if found is None:
            raise _unknown()
        return json_response(found.as_dict())

    async def cancel(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel an unfinished backfill."""
        Parameters(request, ())
        return json_response((await self._changed(operations.cancel, _job(request), caller)).as_dict())

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a cancelled or failed backfill wait for a worker process again."""
        Parameters(request, ())
        job = _job(request)
        self._require_list()
        return json_response((await self._changed(operations.resume, job, caller)).as_dict(), 202)

    async def _changed(self, change: _Change, job: int, caller: Caller) -> Backfill:
        with as_problems():
            try:
                return await change(self.backfills, self.audit_log, job, caller.name)
            except operations.UnfinishedBackfill as error:
                raise _unfinished(error) from error
            except operations.NoSuchBackfill as error:
                if await self.backfills.get(job) is None:
                    raise _unknown() from error
                raise Problem(409, "backfill_ended", str(error)) from error

    def _require_list(self) -> None:
        if not self.has_list:
            raise Problem(409, "no_list", "no list of orders is configured for this source")


def _job(request: web.Request) -> int:
    text = request.match_info["backfill"]
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
        raise _unknown()
    return int(text)


def _unfinished(error: operations.UnfinishedBackfill) -> Problem:
    return Problem(409, "unfinished_backfill", f"the backfill {error.job} is unfinished", id=error.job)


def _unknown() -> Problem:
    return Problem(404, "backfill_not_found", "there is no backfill with this number")
