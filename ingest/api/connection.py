"""The HTTP server under the routes: connections, their limits, and what cannot be read as a request."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from ingest.api.problems import CONTENT_TYPE, Problem
from ingest.api.requests import SECURITY_HEADERS, Request
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
# How long what remains of a body is read after its answer, so that the client reads the answer before a reset.
_LINGERING = 2.0
_LINE_SIZE = 8190
_FIELD_SIZE = 4096
_FIELDS = 64
# A header that has come in several pieces may be this large: so much of each connection can be in memory for nothing.
_HEADER_SIZE = 16 * 1024
# Among how many of the oldest connections an idle one is looked for, when there are too many.
_SEARCHED = 256

Answer = Callable[[Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one process spends on its clients.

    Attributes:
        connections: at a time; for more, idle ones are closed, and if there are none, the new ones.
        idle: seconds between two requests of a connection.
        header: seconds for the header of a request, from its first byte.
        unread: seconds that an answer may wait for its client to read it.
    """

    connections: int
    idle: float
    header: float
    unread: float = 60.0


class Connection(web.RequestHandler):
    """One connection of a client.

    Args:
        server: it belongs to.
        options: of aiohttp.
    """

    __slots__ = ("_header_size", "_header_timer", "_limits", "_server")

    def __init__(self, server: "HttpServer", **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._limits = server.limits
        self._header_size = 0
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has come yet."""
        return self._is_waiting and not self._header_size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or refuse the connection if there are too many."""
        if not self._server.has_room():
            self._force_close = True
            _refuse(cast("asyncio.Transport", transport), 503, "busy", "there are too many connections; try again")
            return
        _limit_unread(transport, self._limits.unread)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request; watch how long and how large its header becomes."""
        super().data_received(data)
        if self._is_waiting:
            self._header_goes_on(len(data))
        elif self._header_size:
            self._header_ends()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._header_ends()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request that we can read; what it was is neither answered nor logged."""
        del message
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
            problem = Problem(500, "internal_error", "an unexpected error; it has been logged")
        else:
            problem = Problem(400, "bad_request", "this is not an HTTP request that can be read")
            self._server.unreadable()
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another answer has been sent")
        response = problem.response()
        response.force_close()
        return response

    @property
    def _is_waiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _header_goes_on(self, size: int) -> None:
        self._header_size += size
        if self._header_size > _HEADER_SIZE:
            self._refuse(431, "header_too_large", f"the header has more than {_HEADER_SIZE:,} bytes")
        elif self._header_timer is None:
            self._header_timer = self._loop.call_later(self._limits.header, self._header_is_overdue)

    def _header_ends(self) -> None:
        self._header_size = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_is_overdue(self) -> None:
        self._refuse(408, "header_too_slow", f"the header has not come within {self._limits.header:g} s")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._header_ends()
        self._server.unreadable()
        if self.transport is not None:
            _refuse(self.transport, status, code, detail)
        self.force_close()


class HttpServer(web.Server):
    """Makes the connections, and counts them.

    Args:
        answer: answers one request.
        limits: of connections.
        unreadable: told of each request that could not be read.
    """

    def __init__(self, answer: Answer, limits: ConnectionLimits, unreadable: Callable[[], None]) -> None:
        super().__init__(
            cast("Any", answer),
            request_factory=self._request,
            keepalive_timeout=limits.idle,
            lingering_time=_LINGERING,
            auto_decompress=False,
            max_line_size=_LINE_SIZE,
            max_field_size=_FIELD_SIZE,
            max_headers=_FIELDS,
            access_log=None,
        )
        self.limits = limits
        self.unreadable = unreadable
        self._running = asyncio.get_running_loop()

    def __call__(self) -> web.RequestHandler:
        """A connection, for the transport that has just been accepted."""
        return Connection(self, loop=self._running, **self._kwargs)

    def has_room(self) -> bool:
        """Whether one more connection may be; closes an idle one if that makes room."""
        if len(self._connections) < self.limits.connections:
            return True
        for connection in islice(self._connections, _SEARCHED):
            if isinstance(connection, Connection) and connection.is_idle:
                connection.force_close()
                return True
        return False

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> Request:
        return Request(message, payload, protocol, writer, task, self._running)


def _refuse(transport: asyncio.Transport, status: int, code: str, detail: str) -> None:
    """Answer before there is a request, and close."""
    problem = Problem(status, code, detail)
    body = problem.body()
    headers = {**SECURITY_HEADERS, "Content-Type": CONTENT_TYPE, "Content-Length": len(body), "Connection": "close"}
    if status == 503:
        headers["Retry-After"] = "1"
    lines = [f"HTTP/1.1 {status} {problem.title}", *(f"{name}: {value}" for name, value in headers.items())]
    transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    transport.close()


def _limit_unread(transport: asyncio.BaseTransport, seconds: float) -> None:
    """Let the system end the connection if its client reads nothing of what has been sent for this long (Linux)."""
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT") and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))
