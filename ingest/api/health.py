"""`/healthz`, which uses no server, and `/readyz`, which checks the servers that the API needs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import Documentation, DocumentedResponse
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Route
from ingest.domain.errors import Unavailable

_SECONDS = 2.0
_REUSED_FOR = 1.0
_OK = {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}}
_LIVE = Documentation(
    summary="Whether the process answers",
    text="For liveness probes: touches no other server.",
    answers={200: DocumentedResponse("It does.", _OK)},
)
_READY = Documentation(
    summary="Whether orders can be accepted",
    text="For readiness probes and load balancers. Checks the required servers, at most once per second.",
    answers={200: DocumentedResponse("All servers that are needed can be used.", _OK)},
    problems={503: "A required server cannot be used. `servers` names it."},
)


class Health:
    """Routes for load balancers and process managers.

    Args:
        checks: by the server's name: returns if it can be used, else raises `Unavailable`.
    """

    def __init__(self, checks: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._checks = checks
        self._checking: asyncio.Task[dict[str, str]] | None = None
        self._checked_at = 0.0

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/healthz", None, self.live, _LIVE),
            Route("GET", "/readyz", None, self.ready, _READY),
        ]

    async def live(self, request: web.Request, caller: Caller) -> web.Response:
        """This process answers."""
        del request, caller
        return _answer({"status": "ok"})

    async def ready(self, request: web.Request, caller: Caller) -> web.Response:
        """Redis can be used."""
        del request, caller
        # Open to everyone at any rate, because the servers are checked once per second.
        now = asyncio.get_running_loop().time()
        if self._checking is None or (self._checking.done() and now - self._checked_at > _REUSED_FOR):
            self._checked_at = now
            self._checking = asyncio.create_task(self._check())
        servers = await asyncio.shield(self._checking)
        if any(state != "ok" for state in servers.values()):
            raise Problem(503, "not_ready", "a server that is needed cannot be used", servers=servers)
        return _answer({"status": "ok", "servers": servers})

    async def _check(self) -> dict[str, str]:
        states = await asyncio.gather(*(self._state(check) for check in self._checks.values()))
        return dict(zip(self._checks, states, strict=True))

    async def _state(self, check: Callable[[], Awaitable[object]]) -> str:
        try:
            async with asyncio.timeout(_SECONDS):
                await check()
        except (Unavailable, TimeoutError):
            return "unavailable"
        return "ok"


def _answer(content: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
