"""The HTTP server under the routes: makes connections, limits their number, and finishes what runs at the end."""

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from ingest.api.http.connection import Connection, ConnectionLimits
from ingest.api.http.requests import Request
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
# How long what remains of a body is read after its answer, so that the client reads the answer before a reset.
_LINGERING = 2.0
_LINE_SIZE = 8190
_FIELD_SIZE = 4096
_FIELDS = 64
_BACKLOG = 4096
# For each request that is cancelled at the end; 0 would be without limit.
_DROPPED_WITHIN = 0.1
# Among how many connections an idle one is looked for, when there are too many.
_SEARCHED = 1024

Answer = Callable[[Request], Awaitable[web.StreamResponse]]


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
        self._none_left = asyncio.Event()
        # Those that were looked at last come last.
        self._in_turn: OrderedDict[Connection, None] = OrderedDict()

    def __call__(self) -> web.RequestHandler:
        """A connection, for the transport that has just been accepted."""
        return Connection(self, loop=self._running, **self._kwargs)

    def has_room(self) -> bool:
        """Whether one more connection may be; closes an idle one, or one whose request comes slowly, if that makes room."""
        if len(self._connections) < self.limits.connections:
            return True
        for connection in [*islice(self._in_turn, _SEARCHED)]:
            # Busy ones are looked at again only after all others, so that many of them do not hide the idle ones.
            self._in_turn.move_to_end(connection)
            if connection.is_idle or connection.is_slow:
                connection.force_close()
                return True
        return False

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection."""
        super().connection_made(handler, transport)
        if isinstance(handler, Connection):
            self._in_turn[handler] = None

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Count it no more."""
        super().connection_lost(handler, exc)
        if isinstance(handler, Connection):
            self._in_turn.pop(handler, None)

    def ended(self) -> None:
        """Note the end of a connection."""
        # It is removed when its task has ended, too.
        self._running.call_soon(self._check_left)

    def _check_left(self) -> None:
        if not self._connections:
            self._none_left.set()

    async def finish(self, overdue: asyncio.Event) -> None:
        """Close idle connections, and wait for the requests of the others; return when all are closed.

        aiohttp's own shutdown stops reading at once, so that a body which is still being sent would never be complete.

        Args:
            overdue: set when no more is waited for.
        """
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.is_idle:
                connection.force_close()
        self._none_left.clear()
        self._check_left()
        self._running.call_soon(self._check_left)
        waits = [asyncio.create_task(event.wait()) for event in (self._none_left, overdue)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.connections:
            _log.warning("requests_dropped", connections=len(self.connections))
        await self.shutdown(_DROPPED_WITHIN)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> Request:
        return Request(message, payload, protocol, writer, task, self._running)


@asynccontextmanager
async def listening(
    server: HttpServer, listener: socket.socket, tls: ssl.SSLContext | None, overdue: asyncio.Event
) -> AsyncIterator[None]:
    """Accept connections while the block runs, then finish what runs.

    Args:
        server: of the connections.
        listener: on it.
        tls: for HTTPS.
        overdue: set when the time to finish is over.
    """
    # A handshake is a kind of header: nothing else is known of its connection yet.
    options: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": server.limits.header}
    accepting = await asyncio.get_running_loop().create_server(
        cast("Any", server), sock=listener, backlog=_BACKLOG, **options
    )
    try:
        yield
    finally:
        accepting.close()
        # Connections that have been accepted are handed to their protocols in the next turn.
        await asyncio.sleep(0)
        await server.finish(overdue)
