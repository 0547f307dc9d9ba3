"""Routes that pause and resume a source and change its limits, and that drain worker processes and change their log level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ingest.api.documentation import control_documentation as documentation
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.problems import failure
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.concerned_sources import require_all, require_quota
from ingest.api.operations.control_bodies import DrainBody, LogLevelBody, PauseBody, ResumeBody, TuneBody
from ingest.api.operations.control_results import DrainResult, PauseResult, ResumeResult, ShownControls, TuneResult
from ingest.domain.operating.controls import InvalidControl, Tuning, checked_limits
from ingest.operations.control import controls, pauses
from ingest.operations.control.control_access import ControlAccess


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
            Route("GET", "/v1/controls", "controls.show", self.show, documentation.SHOW),
            Route("POST", "/v1/pause", "pause", self.pause, documentation.PAUSE),
            Route("POST", "/v1/resume", "resume", self.resume, documentation.RESUME),
            Route("POST", "/v1/tune", "tune", self.tune, documentation.TUNE),
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
            Route("GET", "/v1/workers", "workers.list", self.show, documentation.WORKERS),
            Route("POST", "/v1/workers/drain", "drain", self.drain, documentation.DRAIN),
            Route("POST", "/v1/workers/log-level", "log_level", self.log_level, documentation.LOG_LEVEL),
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
