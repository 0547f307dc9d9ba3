"""The transport on asyncio protocols, parsed by llhttp: HTTP/1.1 with keep-alive, for a fraction of aiohttp's processor time.

It supports any method with headers and a body, HTTPS, gzip and deflate. If a proxy is set, aiohttp sends the requests.
"""

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohappyeyeballs

from ingest.domain.os_errors import is_exhaustion
from ingest.upstream.http.heavy_bodies import HeavyBodies
from ingest.upstream.http.http1_connection import ClosedEarly, Http1Connection
from ingest.upstream.http.http1_origin import Origin
from ingest.upstream.http.tls_context import shared_context_of
from ingest.upstream.http.transport import (
    KEEP_ALIVE,
    Method,
    NoResponse,
    OnHead,
    Options,
    Transport,
    not_connected,
)

_HAPPY_EYEBALLS_DELAY = 0.25
_CLOSE_SECONDS = 1.0
# Seconds between two checks for overdue requests.
_CHECK_EVERY = 0.05
_CLOSED = "the transport was closed"


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Transport]:
    """Open a transport. On exit its connections are closed."""
    if options.proxy is not None:
        from ingest.upstream.http.aiohttp import AiohttpTransport  # noqa: PLC0415  only for a proxy

        async with AiohttpTransport.open(options) as other:
            yield other
        return
    transport = NativeTransport(options)
    try:
        yield transport
    finally:
        await transport.close()


class NativeTransport:
    """Our own connections, one for each concurrent request, kept for `KEEP_ALIVE` seconds.

    Args:
        lifetime: the fewest and the most seconds that a connection is used, however busy it is. A server that was drained, or has another
            address now, is left then.
    """

    def __init__(self, options: Options, lifetime: tuple[float, float] = (240.0, 360.0)) -> None:
        self._lifetime = lifetime
        self._loop = asyncio.get_running_loop()
        self._limits = options.limits
        self._error_body = options.error_body
        self._tls = shared_context_of(options.tls) if options.is_tls else None
        # By the beginning of their URLs, and the last one used.
        self._origins: dict[str, Origin] = {}
        self._origin: Origin | None = None
        self._connections: set[Http1Connection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._closed: asyncio.Event | None = None
        self._heavy = HeavyBodies()
        self._decompressing = asyncio.Lock()

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_head: OnHead | None = None,
    ) -> bytes:
        """See `Transport`."""
        origin = self._origin
        if origin is None or not url.startswith(origin.root):
            origin = self._origin = self._origin_of(url)
        request = origin.request(url, headers, method, body)
        now = self._loop.time()
        deadline = now + self._limits.total
        connection = self._kept(origin.idle, now)
        if connection is None:
            return await self._send_on_new(origin, request, deadline, on_head)
        answered = connection.request(request, now, deadline, on_head)
        try:
            document = await answered
        except asyncio.CancelledError:
            connection.cancel(answered)
            raise
        except ClosedEarly:
            # The server closed a kept connection as we used it, which is its right. A GET may be sent again.
            if method != "GET":
                raise
            return await self._send_on_new(origin, request, deadline, on_head)
        return document if isinstance(document, bytes) else await document.content(self._decompressing)

    async def close(self) -> None:
        """Close all connections, which ends running requests."""
        if self._watch is not None:
            self._watch.cancel()
        self._closed = asyncio.Event()
        for connection in list(self._connections):
            connection.fail(NoResponse(_CLOSED))
        if self._connections:
            # The loop closes a socket in one of its next turns.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._closed.wait()

    async def _send_on_new(self, origin: Origin, request: bytes, deadline: float, on_head: OnHead | None) -> bytes:
        connection = await self._connected(origin, deadline)
        answered = connection.request(request, self._loop.time(), deadline, on_head)
        try:
            document = await answered
        except asyncio.CancelledError:
            connection.cancel(answered)
            raise
        return document if isinstance(document, bytes) else await document.content(self._decompressing)

    def _origin_of(self, url: str) -> Origin:
        known = (origin for origin in self._origins.values() if url.startswith(origin.root))
        origin = next(known, None) or Origin(url)
        return self._origins.setdefault(origin.root, origin)

    def _kept(self, idle: list[Http1Connection], now: float) -> Http1Connection | None:
        """Return the connection that was used last, if one can be used again."""
        while idle:
            connection = idle.pop()
            if connection.is_open and now < connection.heard_at + KEEP_ALIVE and now < connection.retires_at:
                return connection
            connection.abort()
        return None

    async def _connected(self, origin: Origin, deadline: float) -> Http1Connection:
        """Open a connection."""
        loop = self._loop
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + self._limits.connect)):
                connected = await self._connect(origin, await origin.addresses())
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "closed" not in str(error):
                raise
            raise not_connected(error) from error
        if self._closed is not None:
            # The transport would not close a new connection any more.
            connected.abort()
            raise NoResponse(_CLOSED, reached=False)
        if not connected.is_open:  # the server has sent data without a request, or has closed it
            raise NoResponse("the connection was closed", reached=False)
        connected.retires_at = loop.time() + random.uniform(*self._lifetime)  # noqa: S311  so that they do not end together
        self._connections.add(connected)
        if self._watch is None:
            self._watch = loop.call_later(_CHECK_EVERY, self._check)
        return connected

    async def _connect(self, origin: Origin, addresses: Sequence[aiohappyeyeballs.AddrInfoType]) -> Http1Connection:
        # The certificate must be valid for the host name without the dot of a fully qualified one.
        tls: dict[str, Any] = {"ssl": self._tls, "server_hostname": origin.host.rstrip(".")} if origin.is_tls else {}

        def new() -> Http1Connection:
            return Http1Connection(self._limits.body, self._error_body, origin.idle, self._ended, self._heavy)

        try:
            if len(addresses) == 1 and addresses[0][0] == socket.AF_INET:
                # With a single address, the loop itself connects in 33 % of the time.
                host, port = addresses[0][4][:2]
                return (await self._loop.create_connection(new, host, port, **tls))[1]
            connected = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=self._loop
            )
            # From here on the loop closes the socket, even if it fails.
            return (await self._loop.create_connection(new, sock=connected, **tls))[1]
        except ssl.SSLError:
            raise
        except OSError as error:
            if not is_exhaustion(error):  # to resolve the name takes file descriptors as well
                origin.forget_addresses()
            raise

    def _ended(self, connection: Http1Connection) -> None:
        self._connections.discard(connection)
        if self._closed is not None and not self._connections:
            self._closed.set()

    def _check(self) -> None:
        """End the requests that are overdue, and connections that were idle for long."""
        now = self._loop.time()
        for connection in list(self._connections):
            if connection.is_late(now, self._limits.read):
                connection.fail(NoResponse("while waiting for the response", timed_out=True))
            elif connection.is_unused(now - KEEP_ALIVE):
                connection.abort()
        self._watch = self._loop.call_later(_CHECK_EVERY, self._check) if self._connections else None
