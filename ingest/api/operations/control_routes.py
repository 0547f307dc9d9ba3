"""Routes that pause and resume a source and change its limits, and that drain worker processes and change their log level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ingest.api.documentation.documentation import Documentation
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.problems import failure
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.concerned_sources import require_all, require_quota
from ingest.api.operations.control_bodies import (
    DrainBody,
    DrainResult,
    LogLevelBody,
    PauseBody,
    PauseResult,
    ResumeBody,
    ResumeResult,
    ShownControls,
    TuneBody,
    TuneResult,
)
from ingest.domain.operating.controls import InvalidControl, Tuning, checked_limits
from ingest.operations.control import controls, pauses
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.control.controls import Overview

_SHOW = Documentation(text="Of a source.", schema=ShownControls)
_PAUSE = Documentation(
    text="Within two seconds, workers request no more of its orders. Requests in flight finish, and all other orders wait. Lists are still "
    "read, unless `hold_polls` is set. A repeated request replaces the pause. A dry run counts the orders that would wait.",
    bodies={JSON: PauseBody},
    schema=PauseResult,
    problems={422: "The duration or the reason is invalid."},
)
_RESUME = Documentation(
    text="Workers continue within two seconds. A source that is not paused stays as it is.",
    bodies={JSON: ResumeBody},
    response="Whether the source was paused.",
    schema=ResumeResult,
    problems={422: "The body is invalid."},
)
_TUNE = Documentation(
    text="A limit that is left out stays as it is. The change survives restarts, until `reset`. Sources that share a quota get the same "
    "rate.",
    bodies={JSON: TuneBody},
    schema=TuneResult,
    problems={422: "There is no limit, or a limit is out of range."},
)
_WORKERS = Documentation(
    text="With their drains, and with the changed limits and log levels of the deployment. A key that is limited to sources sees their "
    "limits and entries only.",
    response="The worker processes with a heartbeat, by name.",
    schema=Overview,
)
_DRAIN = Documentation(
    text="Within two seconds, the processes of a host, of one `ingest worker`, or a single process begin no orders. Requests in flight "
    "finish, and other processes take the rest. `undo` ends a drain.",
    bodies={JSON: DrainBody},
    response="The names of the processes.",
    schema=DrainResult,
    problems={422: "The body is invalid."},
)
_LOG_LEVEL = Documentation(
    text="On one host, or on all hosts. Null returns to the configured level.",
    bodies={JSON: LogLevelBody},
    schema=LogLevelBody,
    problems={422: "The level is unknown."},
)


@dataclass(frozen=True, slots=True)
class PauseRoutes:
    """`/v1/controls`, `/v1/pause`, `/v1/resume` and `/v1/tune` of one source.

    Attributes:
        access: The access to the controls.
        limits: The limits of bodies.
        source: The name of the source.
    """

    access: ControlAccess
    limits: BodyLimits
    source: str

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/controls", "controls.show", self.show, _SHOW),
            Route("POST", "/v1/pause", "pause", self.pause, _PAUSE),
            Route("POST", "/v1/resume", "resume", self.resume, _RESUME),
            Route("POST", "/v1/tune", "tune", self.tune, _TUNE),
        ]

    async def show(self, request: web.Request, _: Caller) -> web.Response:
        """The pause and the changed limits of the source."""
        Parameters(request, ())
        found, now = await self.access.read(), await self.access.record.now()
        pause = pauses.shown(found.pause_of(self.source, now), now)
        limits = controls.shown_limits(found.tunings.get(self.source))
        return json_response(ShownControls(self.source, pause, limits))

    async def pause(self, request: web.Request, caller: Caller) -> web.Response:
        """Pause the source."""
        body = await json_body(request, self.limits, PauseBody)
        wanted = body.request()
        if body.dry_run:
            return json_response(PauseResult(dry_run=True, source=self.source, **await self._preview()))
        paused = (await pauses.pause(self.access, [self.source], wanted, caller.name))[self.source]
        shown = pauses.shown(paused, paused.since)
        return json_response(PauseResult(dry_run=False, source=self.source, pause=shown))

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Resume the source."""
        body = await json_body(request, self.limits, ResumeBody)
        if body.dry_run:
            return json_response(ResumeResult(dry_run=True, source=self.source, **await self._preview()))
        resumed = await pauses.resume(self.access, [self.source], caller.name)
        return json_response(ResumeResult(dry_run=False, source=self.source, resumed=bool(resumed)))

    async def tune(self, request: web.Request, caller: Caller) -> web.Response:
        """Change the limits of the source."""
        body = await json_body(request, self.limits, TuneBody)
        if body.reset and (body.concurrency is not None or body.rate is not None):
            raise InvalidControl("reset returns to the configured limits: leave concurrency and rate out")
        if not body.reset:
            checked_limits(body.concurrency, body.rate)
        require_quota(caller, self.access.sources, self.source)
        tuning = await self._tuned(body, caller)
        return json_response(TuneResult(body.dry_run, self.source, controls.shown_limits(tuning)))

    async def _tuned(self, body: TuneBody, caller: Caller) -> Tuning | None:
        if body.dry_run:
            return (await self.access.read()).tunings.get(self.source)
        if body.reset:
            await controls.reset_tuning(self.access, self.source, caller.name)
            return None
        return await controls.tune(self.access, self.source, caller.name, concurrency=body.concurrency, rate=body.rate)

    async def _preview(self) -> Mapping[str, Any]:
        [found] = await pauses.preview(self.access, [self.source])
        waiting = (found.queue.depth or 0) + found.queue.retries
        shown = pauses.shown(found.pause, await self.access.record.now())
        return {"pause": shown, "waiting": waiting, "pending": found.queue.pending}


@dataclass(frozen=True, slots=True)
class WorkerRoutes:
    """`/v1/workers` and the routes below it. Changes are for callers that may use all sources.

    Attributes:
        access: The access to the controls.
        limits: The limits of bodies.
    """

    access: ControlAccess
    limits: BodyLimits

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/workers", "workers.list", self.show, _WORKERS),
            Route("POST", "/v1/workers/drain", "drain", self.drain, _DRAIN),
            Route("POST", "/v1/workers/log-level", "log_level", self.log_level, _LOG_LEVEL),
        ]

    async def show(self, request: web.Request, caller: Caller) -> web.Response:
        """The worker processes, and their controls."""
        Parameters(request, ())
        return json_response(await controls.overview(self.access, caller.sees))

    async def drain(self, request: web.Request, caller: Caller) -> web.Response:
        """Drain worker processes, or let them begin orders again."""
        body = await json_body(request, self.limits, DrainBody)
        require_all(caller, self.access.sources)
        try:
            found = await self._drained(body, caller)
        except controls.NoSuchProcess as error:
            raise failure("unknown_process", str(error)) from error
        return json_response(DrainResult(body.dry_run, body.target, [each.name for each in found]))

    async def _drained(self, body: DrainBody, caller: Caller) -> Sequence[controls.WorkerProcess]:
        if body.dry_run:
            return await controls.matching(self.access, body.target)
        if body.undo:
            return await controls.undrain(self.access, body.target, caller.name)
        return await controls.drain(self.access, body.target, caller.name, body.reason)

    async def log_level(self, request: web.Request, caller: Caller) -> web.Response:
        """Change the log level of running workers."""
        body = await json_body(request, self.limits, LogLevelBody)
        require_all(caller, self.access.sources)
        await controls.set_log_level(self.access, body.level, caller.name, body.host)
        return json_response(body)
