"""Limits on the connections of clients. They extend aiohttp's protocol of a connection through its public members.

A client that connects and sends nothing, or very slowly, must not keep others out. aiohttp itself closes a connection that waits too
long for a request, and limits the fields of a header.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from aiohttp import web

from ingest.api.http.problems import Problem, raw_response
from ingest.flow.waiting import first_of
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
# The size of a header that comes in several pieces.
_HEADER_SIZE = 16 * 1024
_HEADER_END = b"\r\n\r\n"
# A client is slow if it takes longer for as many bytes of a request.
_PIECE = 8 * 1024
_PIECE_TIME = 0.5
# How long a response may wait until its client reads it.
_UNREAD = 60.0
# The connections that are searched for an idle one when there are too many.
_SEARCHED = 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process.

    Attributes:
        connections: The most connections. For a further one, an idle one is closed. If there is none, the new one is rejected.
        idle: Seconds between two requests of a connection.
        header: Seconds for the header of a request, from its first byte.
    """

    connections: int
    idle: float
    header: float


class Connection(web.RequestHandler):
    """One connection.

    Args:
        server: Handles its requests.
        connections: All connections of the process.
        options: The options of aiohttp's protocol.
    """

    __slots__ = ("connections", "header", "header_timer", "piece", "piece_began", "request")

    def __init__(self, server: web.Server, connections: "Connections", **options: Any) -> None:
        super().__init__(server, **options)
        self.connections = connections
        self.request: web.Request | None = None
        # The header of the next request as far as it has come, or None once it is whole.
        self.header: bytes | None = None
        # Runs from the first byte of a request until aiohttp has begun it, a few iterations of the loop after its header.
        self.header_timer: asyncio.TimerHandle | None = None
        self.piece = 0
        self.piece_began = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the first byte of a request."""
        return self.request is None and self.header_timer is None

    @property
    def is_slow(self) -> bool:
        """Whether it has recently sent very little of an incomplete request."""
        if self.header_timer is None and (self.request is None or self.request.content.is_eof()):
            return False
        return asyncio.get_running_loop().time() - self.piece_began > _PIECE_TIME

    def begin(self, request: web.Request) -> None:
        """The header of a request is complete. `request` is None again when there is a response."""
        self.request = request
        self._end_header()

    def drop_body(self, problem: Problem) -> None:
        """End the request whose body is being received."""
        if self.request is not None:
            self.request.content.set_exception(problem)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or reject the connection if there are too many."""
        if self.connections.add(self):
            _limit_unread(transport)
            super().connection_made(transport)
        else:
            problem = Problem(503, "busy", "there are too many connections, try again", headers={"Retry-After": "1"})
            _close_with(cast("asyncio.Transport", transport), problem)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request, unless its header is too large. aiohttp calls it without data to continue after a pause."""
        if data:
            self._note(data)
            if self.header is not None and len(self.header) > _HEADER_SIZE:
                self._reject(Problem(431, "header_too_large", f"the header has more than {_HEADER_SIZE:,} bytes"))
                return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._end_header()
        self.connections.remove(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond to data that is not a request, and close the connection by raising a `ConnectionError`.

        aiohttp itself would repeat the header, which may contain a secret, in its response and in the log.
        """
        del message
        if isinstance(exc, ConnectionError):
            raise exc
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
            problem = Problem(500, "internal_error", "an unexpected error, which has been logged")
        else:
            problem = Problem(400, "bad_request", "this is not an HTTP request that can be read")
            self.connections.unreadable()
        if self.transport is not None and request.writer.output_size == 0:
            self.transport.write(raw_response(problem))
        raise ConnectionAbortedError

    def _note(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self.is_idle:
            self.header, self.piece, self.piece_began = b"", 0, loop.time()
            self.header_timer = loop.call_later(self.connections.limits.header, self._header_is_overdue)
        self.piece += len(data)
        if self.piece >= _PIECE:
            self.piece, self.piece_began = 0, loop.time()
        if self.header is not None:
            received = self.header + data
            self.header = None if _HEADER_END in received else received

    def _end_header(self) -> None:
        self.header = None
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _header_is_overdue(self) -> None:
        seconds = self.connections.limits.header
        self._reject(Problem(408, "header_too_slow", f"the header has not come within {seconds:g} s"))

    def _reject(self, problem: Problem) -> None:
        """Respond before there is a request, and close."""
        self.connections.unreadable()
        self._end_header()
        if self.transport is not None:
            _close_with(self.transport, problem)


class Connections:
    """The connections of one process. The event loop calls it for each new one.

    Args:
        server: Handles the requests.
        limits: The limits of each process.
        unreadable: Counts data that is not a request.
        options: The options of aiohttp's protocol.
    """

    def __init__(
        self, server: web.Server, limits: ConnectionLimits, unreadable: Callable[[], None], **options: Any
    ) -> None:
        self.limits = limits
        self.unreadable = unreadable
        self._server = server
        self._options = {"loop": asyncio.get_running_loop(), "keepalive_timeout": limits.idle, **options}
        # Those that were searched last come last.
        self._open: OrderedDict[Connection, None] = OrderedDict()
        self._none_left = asyncio.Event()

    def __call__(self) -> Connection:
        """A connection for the transport that has just been accepted."""
        return Connection(self._server, self, **self._options)

    def add(self, connection: Connection) -> bool:
        """Whether there is room for one more connection. It closes an idle or slow one if that makes room."""
        if len(self._open) >= self.limits.connections and not self._close_one():
            return False
        self._open[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.pop(connection, None)
        if not self._open:
            self._none_left.set()

    async def finish(self, overdue: asyncio.Event) -> int:
        """Close idle connections, wait until the others have ended or `overdue` is set, and return how many are left.

        The others end with their response, or with their header's time limit.
        """
        for connection in list(self._open):
            if connection.is_idle:
                connection.force_close()
        if self._open:
            self._none_left.clear()
            await first_of([], self._none_left, overdue)
        return len(self._open)

    def _close_one(self) -> bool:
        for connection in [*islice(self._open, _SEARCHED)]:
            # Busy ones are searched again only after all others, so that many of them do not hide the idle ones.
            self._open.move_to_end(connection)
            if connection.is_idle or connection.is_slow:
                del self._open[connection]
                connection.force_close()
                return True
        return False


def _close_with(transport: asyncio.Transport, problem: Problem) -> None:
    transport.write(raw_response(problem))
    transport.close()


def _limit_unread(transport: asyncio.BaseTransport) -> None:
    """Let the system end the connection if its client does not read a response in time (Linux)."""
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT") and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(_UNREAD * 1000))
