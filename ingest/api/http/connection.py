"""One connection of a client: its limits, and what cannot be read as a request."""

import asyncio
import socket
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from ingest.api.http.problems import CONTENT_TYPE, Problem
from ingest.api.http.requests import SECURITY_HEADERS
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
_T = TypeVar("_T")
# A header that has come in several pieces may be this large: so much of each connection can be in memory for nothing.
_HEADER_SIZE = 16 * 1024
# Slow is what sends less than this, bytes a second, looked at over a second or two.
_SLOWEST = 16 * 1024
_WINDOW = 1.0


class Connections(Protocol):
    """What a connection asks of its server."""

    limits: "ConnectionLimits"

    def has_room(self) -> bool:
        """Whether one more connection may be."""

    def unreadable(self) -> None:
        """Count what could not be read as a request."""

    def ended(self) -> None:
        """Note the end of a connection."""


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

    __slots__ = (
        "_ends_with_client",
        "_header_size",
        "_header_timer",
        "_limits",
        "_received",
        "_received_before",
        "_received_since",
        "_server",
    )

    def __init__(self, server: Connections, **options: Any) -> None:
        super().__init__(cast("web.Server", server), **options)
        self._server = server
        self._limits = server.limits
        self._header_size = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._ends_with_client: asyncio.Future[Any] | None = None
        # Of the current request: what has come since a moment, and in the window before it, if there was one.
        self._received = 0
        self._received_since = 0.0
        self._received_before: int | None = None

    @property
    def is_slow(self) -> bool:
        """Whether it has sent next to nothing lately, of a request that is not complete."""
        request = self._current_request
        if not self._header_size and (request is None or request.content.is_eof()):
            return False
        elapsed = self._loop.time() - self._received_since
        if elapsed < _WINDOW / 2:
            return self._received_before is not None and self._received_before < _SLOWEST * _WINDOW
        return elapsed >= 2 * _WINDOW or self._received < _SLOWEST * elapsed

    def drop_body(self, problem: Problem) -> None:
        """End the request whose body is being received, and the connection after its answer."""
        request = self._current_request
        if request is not None:
            self.close()
            request.content.set_exception(problem)

    async def until_lost(self, reading: Awaitable[_T]) -> _T:
        """Await something that only reads; if the client goes, it is cancelled.

        Raises:
            ConnectionResetError: the client has gone.
        """
        self._ends_with_client = task = asyncio.ensure_future(reading)
        try:
            return await task
        except asyncio.CancelledError:
            if self.transport is None and task.cancelled():
                raise ConnectionResetError from None
            raise
        finally:
            self._ends_with_client = None

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
        self._note_received(len(data), is_first=self.is_idle)
        super().data_received(data)
        # As `_is_waiting`: this is called for each request.
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self._header_goes_on(len(data))
        elif self._header_size:
            self._header_ends()
        messages = self._messages
        if messages and not isinstance(messages[-1][0], RawRequestMessage):
            self._cannot_go_on()

    def _note_received(self, size: int, *, is_first: bool) -> None:
        now = self._loop.time()
        if is_first:
            self._received, self._received_before, self._received_since = 0, None, now
        elif now - self._received_since >= _WINDOW:
            self._received_before, self._received, self._received_since = self._received, 0, now
        self._received += size

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._header_ends()
        if self._ends_with_client is not None:
            self._ends_with_client.cancel()
        super().connection_lost(exc)
        self._server.ended()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request that we can read; what it was is neither answered nor logged."""
        del message
        if isinstance(exc, ConnectionError) and self.transport is None:
            # The client has gone in the middle of its request: aiohttp ends the connection.
            raise exc
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

    def _cannot_go_on(self) -> None:
        """End the body in which something came that cannot be read: aiohttp waits for the rest of it, which never comes."""
        if len(self._messages) == 1:
            # A request that has just been taken becomes the current one in the next turn.
            self._loop.call_soon(self._end_body)
        elif not self._messages[-2][1].is_eof():
            # Nobody has begun to answer that request: what is queued behind it is the answer.
            del self._messages[-2]

    def _end_body(self) -> None:
        request = self._current_request
        if request is not None and not request.content.is_eof():
            self._messages.clear()
            # Nothing more is read; the connection is closed after the answer.
            self.close()
            request.content.set_exception(Problem(400, "bad_request", "the body does not come as its header says"))
            request.content.feed_eof()

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
