"""Puts admission before the handler of a route, and turns the errors of operations into problems behind it."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import HttpVersion10, web
from multidict import MultiMapping

from ingest.api.http.failures import as_problems
from ingest.api.http.log_limit import LogLimit
from ingest.api.http.problems import Problem
from ingest.api.http.requests import STATE
from ingest.api.http.routing import Caller, Route
from ingest.domain.api_key import Scope
from ingest.telemetry.logs import get_logger

_log = get_logger("api")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ANONYMOUS = Caller("anonymous", frozenset(Scope))
# Of routes that need no key.
_UNKNOWN = Caller("", frozenset())


class Admission(Protocol):
    """Decides who is calling."""

    def admit(self, headers: MultiMapping[str], scope: Scope, source: str | None) -> Caller:
        """The caller, who has the scope, and may use the source if the request is for one.

        Raises:
            Problem: 401, 403 or 429.
        """


class OpenAccess:
    """Admits every caller to every route, for an API on a loopback address."""

    def admit(self, headers: MultiMapping[str], scope: Scope, source: str | None) -> Caller:
        """An anonymous caller."""
        del headers, scope, source
        return ANONYMOUS


def admitting(route: Route, access: Admission, limit: LogLimit) -> Handler:
    """The handler of a route behind admission, as aiohttp calls it. `limit` is for log lines of rejections."""
    name = f"{route.method} {route.path}"
    scopes = () if route.declared is None else route.declared.scopes

    def admit(request: web.Request) -> Caller:
        if not scopes:
            return _UNKNOWN
        needed, *further = scopes
        try:
            caller = access.admit(request.headers, needed, route.source(request))
            caller.require(further)
        except Problem as problem:
            if limit.is_due(problem.key, name, problem.code):
                _log.warning("request_rejected", key=problem.key, route=name, reason=problem.code)
            raise
        return caller

    async def respond(request: web.Request) -> web.StreamResponse:
        caller = admit(request)
        request[STATE].identify(caller.name)
        await _expect(request)
        try:
            if route.is_large:
                await request[STATE].hold_large()
            with as_problems():
                response = await route.handler(request, caller)
        except Problem as problem:
            problem.headers = {**dict(caller.headers), **problem.headers}
            raise
        response.headers.update(caller.headers)
        return response

    return respond


async def expect_later(_: web.Request) -> None:
    """Leave the expectation of a client to `_expect`, because its caller has to be admitted first."""


async def _expect(request: web.Request) -> None:
    """Permit a client to send its body if it waits for that."""
    expected = request.headers.get("Expect")
    if expected is None or request.version == HttpVersion10:
        # A client of HTTP/1.0 takes a 100 for the response: RFC 9110, 10.1.1, ignores its expectation.
        return
    if expected.lower() != "100-continue":
        raise Problem(417, "expectation_failed", "only 100-continue can be expected")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # The response itself has not begun.
    request.writer.output_size = 0
