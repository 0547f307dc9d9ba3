"""The HTTP server is an aiohttp application behind limits on connections. Its middleware identifies, counts and logs each request."""

import asyncio
import re
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.web_protocol import RequestPayloadError
from structlog.contextvars import bind_contextvars

from ingest.api.http.admitting import Admission, Handler, admitting, expect_later
from ingest.api.http.client_pace import SENT
from ingest.api.http.connection import Connection
from ingest.api.http.connections import ConnectionLimits, Connections
from ingest.api.http.log_limit import LogLimit
from ingest.api.http.memory_budget import MemoryBudget, RequestState
from ingest.api.http.problems import SECURITY_HEADERS, Problem
from ingest.api.http.requests import STATE
from ingest.api.http.routing import Route
from ingest.telemetry.api_metrics import CONSOLE, NO_ROUTE, ApiMetrics
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_VARIABLE = re.compile(r"\{(\w+)\}")
# After these the rest of the body is unread, or the client is too slow.
_CLOSING = frozenset({408, 413})
# How long the rest of a body is read after its response, so that the client reads the response before a reset.
_LINGERING = 2.0
# Seconds between two log lines for rejections of the same key and route for the same reason.
_REJECTIONS_EVERY = 60.0
_LINE_SIZE = 8190
_FIELD_SIZE = 4096
_FIELDS = 64
_BACKLOG = 4096
# A client that has just connected sends its first request within this time. Afterwards, its connection is idle.
_FIRST_REQUEST = 0.5
# For each request that is cancelled at the end. 0 would be unlimited.
_DROPPED_WITHIN = 0.1


class Server:
    """The routes, behind admission.

    Attributes:
        application: The application of aiohttp.

    Args:
        routes: The routes of the API.
        access: Admits callers.
        metrics: Count requests.
        memory: The memory of requests and responses.
        is_stopping: Whether connections are to be closed after their responses.
        limits: The limits of connections.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        access: Admission,
        metrics: ApiMetrics,
        memory: MemoryBudget,
        is_stopping: Callable[[], bool],
        limits: ConnectionLimits,
    ) -> None:
        self._memory = memory
        self._is_stopping = is_stopping
        self._limits = limits
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)
        self._seconds = metrics.requests

        @web.middleware
        async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._respond(request, handler)

        self.application = web.Application(middlewares=[respond])
        self.application.on_response_prepare.append(_secure)
        limit = LogLimit(_REJECTIONS_EVERY)
        for route in routes:
            handler = admitting(route, access, limit)
            methods = [route.method, "HEAD"] if route.method == "GET" else [route.method]
            for method in methods:
                # By default aiohttp matches no braces, which an order ID may contain.
                path = _VARIABLE.sub(r"{\1:[^/]+}", route.path)
                self.application.router.add_route(method, path, handler, expect_handler=expect_later)

    @asynccontextmanager
    async def listening(
        self, listener: socket.socket, tls: ssl.SSLContext | None, overdue: asyncio.Event
    ) -> AsyncIterator[None]:
        """Accept connections while the block runs, then finish the requests in progress.

        Args:
            listener: The socket.
            tls: The TLS settings for HTTPS.
            overdue: Set when the time to finish has passed.
        """
        runner = web.AppRunner(self.application, access_log=None, shutdown_timeout=_DROPPED_WITHIN)
        await runner.setup()
        server = runner.server
        assert server is not None  # noqa: S101  it is made by `setup`
        connections = Connections(
            server,
            self._limits,
            self._memory,
            self._count_unreadable,
            lingering_time=_LINGERING,
            auto_decompress=False,
            max_line_size=_LINE_SIZE,
            max_field_size=_FIELD_SIZE,
            max_headers=_FIELDS,
            access_log=None,
        )
        # The handshake is limited like a header, because no request has begun.
        options: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": self._limits.header}
        loop = asyncio.get_running_loop()
        accepting = await loop.create_server(connections, sock=listener, backlog=_BACKLOG, **options)
        try:
            yield
        finally:
            accepting.close()
            await asyncio.sleep(_FIRST_REQUEST)
            if left := await connections.finish(overdue):
                _log.warning("requests_dropped", connections=left)
            await runner.cleanup()

    def _count_unreadable(self) -> None:
        self._seconds[NO_ROUTE]["400"].observe(0.0)

    async def _respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Respond to one request. It raises only if the client has disconnected, or when cancelled."""
        started = time.perf_counter()
        connection = cast("Connection", request.protocol)
        state = request[STATE] = connection.begin(request)
        request_id = self._identify(request)
        # In each log line of the request, which runs in a separate context.
        bind_contextvars(request_id=request_id)
        response: web.StreamResponse | None = None
        try:
            response = await self._response(request, handler, state)
            self._finish(request, response, request_id, started)
            await _send(request, response, connection)
            if request.content.exception() is not None:
                # aiohttp would read the rest of the body, and get this exception.
                connection.force_close()
        except ConnectionError as error:
            # A frame of aiohttp refers to the error, whose traceback would keep the response until garbage is collected.
            response = error.__context__ = None
            raise error.with_traceback(None) from None
        finally:
            connection.end()
        return response

    def _finish(self, request: web.Request, response: web.StreamResponse, request_id: str, started: float) -> None:
        """Complete the header of a response, and count it."""
        response.headers["X-Request-Id"] = request_id
        status = response.status
        if status in _CLOSING or self._is_stopping():
            response.force_close()
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else ""
        if path.startswith(CONSOLE):
            path = CONSOLE
        method = "GET" if request.method == "HEAD" else request.method
        seconds = self._seconds.get((path, method), self._seconds[NO_ROUTE])
        histogram = seconds.get(str(status)) or seconds["other"]
        if isinstance(response, web.Response):
            # A stream of events lasts as long as its page is open.
            histogram.observe(time.perf_counter() - started)

    async def _response(self, request: web.Request, handler: Handler, state: RequestState) -> web.StreamResponse:
        try:
            # The part of its body that has come with its header, or behind an earlier request.
            state.hold(max(state.held, request.content.total_bytes))
            if request.version in (HttpVersion11, HttpVersion10):
                response = await handler(request)
                if isinstance(response, web.Response):
                    state.hold(len(_body_of(response)))
                return response
            return Problem(400, "bad_request", "this is not a request of HTTP/1.1 or HTTP/1.0").response()
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            problem = Problem(405, "method_not_allowed", f"allowed here: {allowed}", headers={"Allow": allowed})
            return problem.response()
        except web.HTTPNotFound:
            return Problem(404, "no_such_path", "there is nothing at this path").response()
        except Problem as problem:
            _check_unsent(state.connection)
            # A frame of aiohttp refers to the problem that ended a body, whose traceback would keep the body until garbage is collected.
            problem.__traceback__ = None
            return problem.response()
        except RequestPayloadError:
            return Problem(400, "bad_request", "the body does not end as its header declares").response()
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:  # noqa: BLE001  one request's bug must not show its insides, nor stop the others
            _log.error("request_failed", method=request.method, exc_info=True)
            _check_unsent(state.connection)
            return Problem(500, "internal_error", "an unexpected error, which has been logged").response()

    def _identify(self, request: web.Request) -> str:
        given = request.headers.get("X-Request-Id")
        if given is not None and _SANE_ID.fullmatch(given):
            return given
        return f"{self._prefix}-{next(self._numbers):x}"


def _body_of(response: web.StreamResponse) -> bytes:
    body = response.body if isinstance(response, web.Response) else None
    return body if isinstance(body, bytes) else b""


async def _send(request: web.Request, response: web.StreamResponse, connection: Connection) -> None:
    """Send a response, and return when all of it has left the process."""
    writer, body = await response.prepare(request), _body_of(response)
    if len(body) > SENT and isinstance(response, web.Response) and writer is not None and request.method != "HEAD":
        await connection.send(writer, body)
        response.body = None
    with connection.pace.sending():
        await response.write_eof()


def _check_unsent(connection: Connection) -> None:
    """Close the connection if a part of a response has been sent, because an error could only follow it."""
    if connection.is_sending:
        connection.abort()
        raise ConnectionResetError


async def _secure(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Server", None)
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
