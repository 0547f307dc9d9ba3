"""Answers requests: finds the route, admits the caller, and makes an answer of whatever the route's handler does.

All that can be prepared for a route is prepared once, at the start.
"""

import asyncio
import contextvars
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.web_protocol import RequestPayloadError
from multidict import MultiMapping
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

from ingest.api.admission.rejections import Rejections
from ingest.api.http.body_memory import BodyMemory
from ingest.api.http.dispatch import Table
from ingest.api.http.problems import Problem
from ingest.api.http.requests import Request
from ingest.api.http.routing import Caller, Handler, Route, Scope
from ingest.telemetry.api_metrics import NO_ROUTE, ApiMetrics
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Histogram

_log = get_logger("api")

ANONYMOUS = Caller("anonymous", frozenset(Scope))
_NOBODY = Caller("nobody", frozenset())
# Every line that is logged for a request has its ID.
_request_id: contextvars.ContextVar[str] = contextvars.ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id")
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_OTHER = 0
# After these the rest of the body is unread, or the client is too slow.
_CLOSING = frozenset({408, 413})


class Admission(Protocol):
    """Decides who is calling."""

    def admit(self, headers: MultiMapping[str], scope: Scope) -> Caller:
        """The caller, who has the scope.

        Raises:
            Problem: 401, 403 or 429.
        """


class OpenAccess:
    """Admits everybody to everything: for an API on a loopback address."""

    def admit(self, headers: MultiMapping[str], scope: Scope) -> Caller:
        """Nobody in particular."""
        del headers, scope
        return ANONYMOUS


class Group(Protocol):
    """Routes that belong together."""

    def routes(self) -> Sequence[Route]:
        """The routes."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A route as it answers.

    Attributes:
        answer: makes the answer.
        seconds: where its time is counted, by status.
    """

    answer: Callable[[Request], Awaitable[web.StreamResponse]]
    seconds: Mapping[int, Histogram]


class Server:
    """The routes, behind admission.

    Args:
        groups: have the routes.
        access: admits callers.
        metrics: count requests.
        memory: of bodies; released after each request.
        is_stopping: whether connections are to be closed after their answers.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        groups: Iterable[Group],
        access: Admission,
        metrics: ApiMetrics,
        memory: BodyMemory,
        is_stopping: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._rejections = Rejections()
        self._table = Table(
            (route.path, route.method, self._endpoint(route, access, metrics)) for route in all_routes(groups)
        )
        self._no_route = _by_status(metrics.requests[NO_ROUTE])
        self._memory = memory
        self._clock = clock
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)
        self._is_stopping = is_stopping

    def count_unreadable(self) -> None:
        """Count what was not a request."""
        self._no_route[400].observe(0.0)

    async def answer(self, request: Request) -> web.StreamResponse:
        """Answer one request; never raises but for a client that has gone, or a cancellation."""
        started = self._clock()
        request_id = self._identify(request)
        _request_id.set(request_id)
        seconds = self._no_route
        try:
            endpoint = self._find(request)
            seconds = endpoint.seconds
            response = await endpoint.answer(request)
        except Problem as problem:
            response = problem.response()
            if request.content.exception() is not None:
                response.force_close()
        except RequestPayloadError:
            response = Problem(400, "bad_request", "the body does not end as its header says").response()
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:  # noqa: BLE001  one request's bug must not show its insides, nor stop the others
            _log.error("request_failed", method=request.method, exc_info=True)
            response = Problem(500, "internal_error", "an unexpected error; it has been logged").response()
        finally:
            if request.taken:
                self._memory.release(request)
        response.headers["X-Request-Id"] = request_id
        status = response.status
        if status in _CLOSING or self._is_stopping():
            response.force_close()
        histogram = seconds.get(status) or seconds[_OTHER]
        histogram.observe(self._clock() - started)
        return response

    def _identify(self, request: Request) -> str:
        given = request.headers.get("X-Request-Id")
        if given is not None and _SANE_ID.fullmatch(given):
            return given
        return f"{self._prefix}-{next(self._numbers):x}"

    def _find(self, request: Request) -> _Endpoint:
        if request.version not in (HttpVersion11, HttpVersion10):
            raise Problem(400, "bad_request", "this is not a request of HTTP/1.1 or HTTP/1.0")
        found = self._table.find(request.rel_url.raw_path)
        if found is None:
            raise Problem(404, "no_such_path", "there is nothing at this path")
        endpoint = found.methods.get(request.method)
        if endpoint is None:
            allowed = ", ".join(sorted(found.methods))
            raise Problem(405, "method_not_allowed", f"allowed here: {allowed}", headers={"Allow": allowed})
        request.variables = found.variables
        return endpoint

    def _endpoint(self, route: Route, access: Admission, metrics: ApiMetrics) -> _Endpoint:
        seconds = _by_status(metrics.requests[route.path, route.method])
        if route.scope is None:
            return _Endpoint(_for_all(route.handler), seconds)
        return _Endpoint(_for_some(route, route.scope, access, self._rejections), seconds)


def all_routes(groups: Iterable[Group]) -> list[Route]:
    """The routes of all groups."""
    return [route for group in groups for route in group.routes()]


def _by_status(seconds: Mapping[str, Histogram]) -> Mapping[int, Histogram]:
    """The histograms by status as a number; those that are counted together under `_OTHER`."""
    return {int(code) if code.isdigit() else _OTHER: histogram for code, histogram in seconds.items()}


def _for_all(handler: Handler) -> Callable[[Request], Awaitable[web.StreamResponse]]:
    async def answer(request: Request) -> web.StreamResponse:
        if "Expect" in request.headers:
            await _expect(request)
        return await handler(request, _NOBODY)

    return answer


def _for_some(
    route: Route, scope: Scope, access: Admission, rejections: Rejections
) -> Callable[[Request], Awaitable[web.StreamResponse]]:
    admit, handler = access.admit, route.handler

    async def answer(request: Request) -> web.StreamResponse:
        try:
            caller = admit(request.headers, scope)
        except Problem as problem:
            rejections.log(route, problem)
            raise
        request.caller = caller.name
        if "Expect" in request.headers:
            await _expect(request)
        if caller.headers:
            return await _answer_with(caller.headers, handler(request, caller))
        return await handler(request, caller)

    return answer


async def _answer_with(
    headers: tuple[tuple[str, str], ...], answering: Awaitable[web.StreamResponse]
) -> web.StreamResponse:
    """An answer with further headers, also if it is an error."""
    try:
        response = await answering
    except Problem as problem:
        problem.headers = {**dict(headers), **problem.headers}
        raise
    response.headers.update(headers)
    return response


async def _expect(request: Request) -> None:
    """Let a client send its body that waits for our permission to."""
    if request.version == HttpVersion10:
        # Such a client takes a 100 for the answer: RFC 9110, 10.1.1, wants the expectation ignored.
        return
    if request.headers["Expect"].lower() != "100-continue":
        raise Problem(417, "expectation_failed", "only 100-continue can be expected")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # The answer itself has not begun.
    request.writer.output_size = 0
