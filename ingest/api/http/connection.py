"""Limits on the connections of clients, around aiohttp's own protocol.

A client that connects and sends nothing, or very slowly, must not keep others out. Each connection is an `asyncio.Protocol` that
passes everything on to aiohttp's protocol, so that only public members of aiohttp are used.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from aiohttp import web

from ingest.api.http.problems import Problem, raw_response
from ingest.api.http.receive_rate import ReceiveRate
from ingest.api.http.request_protocol import RequestProtocol

_T = TypeVar("_T")
# The size of a header that comes in several pieces.
_HEADER_SIZE = 16 * 1024
_HEADER_END = b"\r\n\r\n"
# The connections that are searched for an idle one when there are too many.
_SEARCHED = 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process.

    Attributes:
        connections: the most connections. For a further one, an idle one is closed. If there is none, the new one is rejected.
        idle: seconds between two requests of a connection.
        header: seconds for the header of a request, from its first byte.
        unread: seconds that a response may wait until its client reads it.
    """

    connections: int
    idle: float
    header: float
    unread: float = 60.0


class Connection(asyncio.Protocol):
    """One connection.

    Args:
        inner: aiohttp's protocol.
        connections: all connections of the process.
    """

    def __init__(self, inner: RequestProtocol, connections: "Connections") -> None:
        self._inner = inner
        inner.connection = self
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_accepted = False
        self._request: web.Request | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._header_size = 0
        self._header_tail = b""
        self._is_header_whole = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._rate = ReceiveRate()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the first byte of a request."""
        return self._request is None and self._header_timer is None

    @property
    def is_slow(self) -> bool:
        """Whether it has recently sent very little of an incomplete request."""
        if self._header_timer is None and (self._request is None or self._request.content.is_eof()):
            return False
        return self._rate.is_slow(self._loop.time())

    # -- requests -------------------------------------------------------------------------------------------

    @contextmanager
    def processing(self, request: web.Request) -> Iterator[None]:
        """The header of a request is complete, and the request has a response when the block is left."""
        self._request = request
        self._end_header()
        try:
            yield
        finally:
            self._request = None

    def drop_body(self, problem: Problem) -> None:
        """End the request whose body is being received."""
        if self._request is not None:
            self._request.content.set_exception(problem)

    async def until_lost(self, reading: Awaitable[_T]) -> _T:
        """Await something that only reads, and cancel it if the client disconnects.

        Raises:
            ConnectionResetError: the client has disconnected.
        """
        self._reading = task = asyncio.ensure_future(reading)
        try:
            return await task
        except asyncio.CancelledError:
            if self._transport is None and task.cancelled():
                raise ConnectionResetError from None
            raise
        finally:
            self._reading = None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or reject the connection if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._connections.add(self):
            problem = Problem(503, "busy", "there are too many connections; try again", headers={"Retry-After": "1"})
            self._close_with(problem)
            return
        self._is_accepted = True
        _limit_unread(transport, self._connections.limits.unread)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on a piece of a request, unless its header is too large."""
        now = self._loop.time()
        if self.is_idle:
            self._rate.restart(now)
            self._header_timer = self._loop.call_later(self._connections.limits.header, self._header_is_overdue)
        self._rate.add(len(data), now)
        if self._request is None:
            self._note_header(data)
            if self._header_size > _HEADER_SIZE and not self._is_header_whole:
                self._reject(Problem(431, "header_too_large", f"the header has more than {_HEADER_SIZE:,} bytes"))
                return
        self._inner.data_received(data)

    def eof_received(self) -> None:
        """The client sends nothing more."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._inner.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._transport = None
        self._end_header()
        if self._reading is not None:
            self._reading.cancel()
        self._connections.remove(self)
        if self._is_accepted:
            self._inner.connection_lost(exc)

    def _note_header(self, data: bytes) -> None:
        """Find the end of the header. Its request begins a few iterations of the loop later, and the body may come before that."""
        if not self._is_header_whole:
            received = self._header_tail + data
            self._header_size += len(data)
            self._header_tail = received[1 - len(_HEADER_END) :]
            self._is_header_whole = _HEADER_END in received

    def _end_header(self) -> None:
        self._header_size, self._header_tail, self._is_header_whole = 0, b"", False
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_is_overdue(self) -> None:
        seconds = self._connections.limits.header
        self._reject(Problem(408, "header_too_slow", f"the header has not come within {seconds:g} s"))

    def _reject(self, problem: Problem) -> None:
        """Respond before there is a request, and close."""
        self._connections.unreadable()
        self._end_header()
        self._close_with(problem)

    def _close_with(self, problem: Problem) -> None:
        if self._transport is not None:
            self._transport.write(raw_response(problem))
            self._transport.close()


def connection_of(request: web.Request) -> Connection:
    """The connection of a request."""
    connection: Connection = cast("RequestProtocol", request.protocol).connection
    return connection


class Connections:
    """The connections of one process. The event loop calls it for each new one.

    Args:
        server: handles the requests.
        limits: of each process.
        unreadable: counts data that is not a request.
        options: of aiohttp's protocol.
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
        self._changed = asyncio.Event()

    def __call__(self) -> Connection:
        """A connection for the transport that has just been accepted."""
        return Connection(RequestProtocol(self._server, self.unreadable, **self._options), self)

    def add(self, connection: Connection) -> bool:
        """Whether there is room for one more connection. It closes an idle or slow one if that makes room."""
        if len(self._open) >= self.limits.connections and not self._close_one():
            return False
        self._open[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.pop(connection, None)
        self._changed.set()

    async def finish(self, overdue: asyncio.Event) -> int:
        """Close idle connections, wait until the others have ended or `overdue` is set, and return how many are left."""
        waiting = asyncio.ensure_future(overdue.wait())
        try:
            while self._open and not overdue.is_set():
                for connection in list(self._open):
                    if connection.is_idle:
                        connection.close()
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait([changed, waiting], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            waiting.cancel()
        return len(self._open)

    def _close_one(self) -> bool:
        for connection in [*islice(self._open, _SEARCHED)]:
            # Busy ones are searched again only after all others, so that many of them do not hide the idle ones.
            self._open.move_to_end(connection)
            if connection.is_idle or connection.is_slow:
                del self._open[connection]
                connection.close()
                return True
        return False


def _limit_unread(transport: asyncio.BaseTransport, seconds: float) -> None:
    """Let the system end the connection if its client does not read a response for this long (Linux)."""
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT") and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))
