"""One connection of a client, with limits that extend aiohttp's protocol of a connection through its public members.

A client that connects and sends nothing, or very slowly, must not keep others out. aiohttp itself closes a connection that waits too
long for a request, and limits the fields of a header.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from ingest.api.http.client_pace import SENT, ClientPace
from ingest.api.http.problems import Problem, raw_response, too_busy
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.api.http.connections import Connections
    from ingest.api.http.memory_budget import RequestState

_log = get_logger("api")
# The size of a header that comes in several pieces.
_HEADER_SIZE = 16 * 1024
_HEADER_END = b"\r\n\r\n"
# How long a response may wait until its client reads it.
_UNREAD = 60.0
# Bytes of a response that the system keeps before the client's window has room for them.
_UNSENT = 128 * 1024


class Connection(web.RequestHandler):
    """One connection.

    Args:
        server: Handles its requests.
        connections: All connections of the process.
        options: The options of aiohttp's protocol.
    """

    __slots__ = ("connections", "header", "header_timer", "pace", "request", "state")

    def __init__(self, server: web.Server, connections: "Connections", **options: Any) -> None:
        super().__init__(server, **options)
        self.connections = connections
        self.request: web.Request | None = None
        # The state of the request from its first byte.
        self.state: RequestState | None = None
        # The header of the next request as far as it has come, or None once it is whole.
        self.header: bytes | None = None
        # Runs from the first byte of a request until aiohttp has begun it, a few iterations of the loop after its header.
        self.header_timer: asyncio.TimerHandle | None = None
        self.pace = ClientPace()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the first byte of a request."""
        return self.request is None and self.header_timer is None

    @property
    def is_sending(self) -> bool:
        """Whether a response has begun."""
        return self.request is not None and self.request.writer.output_size > 0

    @property
    def is_slow(self) -> bool:
        """Whether its client has recently sent or read very little while it waits for it."""
        return (self.header is not None or self.pace.waits) and self.pace.is_slow

    def begin(self, request: web.Request) -> "RequestState":
        """The header of a request is complete."""
        self.request = request
        # A request that came behind another one has no state yet.
        self.state = self.state or self.connections.state_of(self)
        self.pace.handle()
        self.connections.begin(self)
        self._end_header()
        return self.state

    def end(self) -> None:
        """The response has left the process."""
        self.request = None
        self.connections.end(self)
        self._release()

    async def send(self, writer: AbstractStreamWriter, body: bytes) -> None:
        """Send a part of a response, and return when all of it has left the process."""
        whole = memoryview(body)
        with self.pace.sending():
            for at in range(0, len(whole), SENT):
                await writer.write(whole[at : at + SENT])
                await writer.drain()
                self.pace.sent()

    def drop(self, problem: Problem) -> None:
        """End the request, with this response if it is being received."""
        if self.request is None and self.transport is not None:
            self._end_header()
            _close_with(self.transport, problem)
        elif self.request is None or self.is_sending or self.request.content.is_eof():
            self.abort()
        elif self.request.content.exception() is None:
            if not self.pace.waits:
                # Drop what has come. While the request waits, it has read everything.
                self.request.content.read_nowait()
            self.request.content.set_exception(problem)

    def abort(self) -> None:
        """Close, and drop what the client has not read yet."""
        transport = self.transport
        if transport is not None:
            transport.abort()
        self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or reject the connection if there are too many."""
        if self.connections.add(self):
            _limit_unread(cast("asyncio.Transport", transport))
            super().connection_made(transport)
        else:
            _close_with(cast("asyncio.Transport", transport), too_busy("there are too many connections, try again"))

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request, unless its header is too large. aiohttp calls it without data to continue after a pause."""
        if data:
            self._note(data)
            if not self._hold(len(data)):
                return
            if self.header is not None and len(self.header) > _HEADER_SIZE:
                self._reject(Problem(431, "header_too_large", f"the header has more than {_HEADER_SIZE:,} bytes"))
                return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._end_header()
        if self.request is None:
            self._release()
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
            # The same error would keep this frame, and the request, until garbage is collected.
            raise ConnectionAbortedError
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
            problem = Problem(500, "internal_error", "an unexpected error, which has been logged")
        else:
            problem = Problem(400, "bad_request", "this is not an HTTP request that can be read")
            self.connections.unreadable()
        if self.transport is not None and request.writer.output_size == 0:
            self.transport.write(raw_response(problem))
        raise ConnectionAbortedError

    def _hold(self, size: int) -> bool:
        """Count data that arrives. Until the request has read it, it is in a buffer of its connection."""
        self.state = self.state or self.connections.state_of(self)
        try:
            self.state.hold(self.state.held + size)
        except Problem as problem:
            self.drop(problem)
            return False
        return True

    def _release(self) -> None:
        if self.state is not None:
            self.state.hold(0)
            self.state = None

    def _note(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self.is_idle:
            self.header = b""
            self.pace.begin()
            self.header_timer = loop.call_later(self.connections.limits.header, self._header_is_overdue)
        self.pace.received(len(data))
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


def _close_with(transport: asyncio.Transport, problem: Problem) -> None:
    transport.write(raw_response(problem))
    transport.close()


def _limit_unread(transport: asyncio.Transport) -> None:
    """Wait for the client after each write that the system does not take whole.

    Let the system end the connection if its client does not read a response in time (Linux).
    """
    transport.set_write_buffer_limits(high=0)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT") and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(_UNREAD * 1000))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
