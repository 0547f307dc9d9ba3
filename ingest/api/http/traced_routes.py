"""Puts the trace of a request around the handlers of routes."""

from dataclasses import replace

from aiohttp import web

from ingest.api.http.failures import as_problems
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Respond, Route
from ingest.domain.fetch.request_headers import is_traceparent
from ingest.telemetry.tracing.port import Tracing
from ingest.telemetry.tracing.request_trace import RequestTrace, current_request

_FAILED = 500


def traced_routes(routes: list[Route], tracing: Tracing | None) -> list[Route]:
    """Return the routes with traces, or unchanged without tracing."""
    if tracing is None:
        return routes
    return [replace(route, handler=_traced(route, tracing)) for route in routes]


def _traced(route: Route, tracing: Tracing) -> Respond:
    name = f"{route.method} {route.path}"
    attributes = {"http.request.method": route.method, "http.route": route.path}

    async def respond(request: web.Request, caller: Caller) -> web.StreamResponse:
        # The sender of a webhook has no key, and must not decide which orders are traced.
        parent = None if route.scope is None else _parent_of(request)
        trace = RequestTrace(tracing, name, parent, attributes)
        # Each request runs in a separate context.
        current_request.set(trace)
        status = _FAILED
        try:
            with as_problems():
                response = await route.handler(request, caller)
            status = response.status
        except Problem as problem:
            status = problem.status
            raise
        finally:
            trace.end(status)
        return response

    return respond


def _parent_of(request: web.Request) -> str | None:
    given = request.headers.get("traceparent")
    return given if given is not None and is_traceparent(given) else None
