"""`/healthz`, which uses no server, and `/readyz`, which checks that Redis can be used."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from ingest.api.documentation.documentation import Documentation, object_schema
from ingest.api.http.json_responses import json_response
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Route
from ingest.domain.errors import Unavailable

_SECONDS = 2.0
_REUSED_FOR = 1.0
_OK = object_schema("status", status={"const": "ok"})
_LIVE = Documentation(
    summary="Whether the process answers",
    text="For liveness probes. It touches no other server.",
    response="It does.",
    schema=_OK,
)
_READY = Documentation(
    summary="Whether orders can be accepted",
    text="For readiness probes and load balancers. Checks the required servers, at most once per second.",
    response="All servers that are needed can be used.",
    schema=_OK,
    problems={503: "A required server cannot be used. `servers` names it."},
)


class Health:
    """Routes for load balancers and process managers.

    Args:
        check_redis: Returns if Redis can be used, else raises `Unavailable`.
    """

    def __init__(self, check_redis: Callable[[], Awaitable[None]]) -> None:
        self._check_redis = check_redis
        self._checking: asyncio.Task[str] | None = None
        self._checked_at = 0.0

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/healthz", None, self.live, _LIVE),
            Route("GET", "/readyz", None, self.ready, _READY),
        ]

    async def live(self, _: web.Request, __: Caller) -> web.Response:
        """This process answers."""
        return json_response({"status": "ok"})

    async def ready(self, _: web.Request, __: Caller) -> web.Response:
        """Redis can be used."""
        # Open to everyone at any rate, because Redis is checked once per second.
        now = asyncio.get_running_loop().time()
        if self._checking is None or (self._checking.done() and now - self._checked_at > _REUSED_FOR):
            self._checked_at = now
            self._checking = asyncio.create_task(self._check())
        servers = {"redis": await asyncio.shield(self._checking)}
        if servers["redis"] != "ok":
            raise Problem(503, "not_ready", "a server that is needed cannot be used", servers=servers)
        return json_response({"status": "ok", "servers": servers})

    async def _check(self) -> str:
        try:
            async with asyncio.timeout(_SECONDS):
                await self._check_redis()
        except (Unavailable, TimeoutError):
            return "unavailable"
        return "ok"
