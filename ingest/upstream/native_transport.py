"""The transport on asyncio protocols, parsed by llhttp: HTTP/1.1 kept alive, for a fraction of aiohttp's processor time.

It does what an API needs: any method with headers and a body, HTTPS, gzip and deflate. Where a proxy is set, aiohttp sends the
requests.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import aiohappyeyeballs

from ingest.upstream.http1_connection import ClosedEarly, Http1Connection
from ingest.upstream.http1_origin import Origin
from ingest.upstream.tls import context_of
from ingest.upstream.transport import KEEP_ALIVE, Method, NoResponse, OnHeaders, Options, Transport

_HAPPY_EYEBALLS_DELAY = 0.25
_CLOSE_SECONDS = 1.0


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Transport]:
    """Open a transport; on exit its connections are closed."""
    if options.proxy is not None:
        from ingest.upstream.aiohttp_transport import AiohttpTransport  # noqa: PLC0415  only for a proxy

        async with AiohttpTransport.open(options) as other:
            yield other
        return
    transport = NativeTransport(options)
    try:
        yield transport
    finally:
        await transport.close()


class NativeTransport:
    """Connections of our own, one for each concurrent request, kept for `KEEP_ALIVE` seconds."""

    def __init__(self, options: Options) -> None:
        self._loop = asyncio.get_running_loop()
        limits = self._limits = options.limits
        self._total = limits.total
        self._tls = context_of(options.tls) if options.is_tls else None
        # By the prefix of their URLs; the one that was used last.
        self._origins: dict[str, Origin] = {}
        self._origin: Origin | None = None
        self._connections: set[Http1Connection] = set()
        self._check_every = min(1.0, max(0.02, min(limits.read, limits.total) / 8))
        self._watch: asyncio.TimerHandle | None = None
        self._closed: asyncio.Event | None = None

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_headers: OnHeaders | None = None,
    ) -> bytes:
        """See `Transport`."""
        origin = self._origin
        if origin is None or not url.startswith(origin.root):
            origin = self._origin = self._origin_of(url)
        request = origin.request(url, headers, method, body)
        now = self._loop.time()
        deadline = now + self._total
        connection = self._kept(origin, now)
        if connection is None:
            connection = await self._connected(origin, deadline)
        answered = connection.request(request, now, deadline, on_headers)
        try:
            return await answered
        except asyncio.CancelledError:
            connection.cancel(answered)
            raise
        except ClosedEarly:
            # The server closed a kept connection as we used it, which is its right. A GET may be sent again.
            if method != "GET":
                raise
        return await self._send_on_new(origin, request, deadline, on_headers)

    async def close(self) -> None:
        """Close all connections; requests that run end."""
        if self._watch is not None:
            self._watch.cancel()
        self._closed = asyncio.Event()
        for connection in list(self._connections):
            connection.fail(NoResponse("the transport was closed"))
        if self._connections:
            # The loop closes a socket in one of its next turns.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._closed.wait()

    async def _send_on_new(
        self, origin: Origin, request: bytes, deadline: float, on_headers: OnHeaders | None
    ) -> bytes:
        """Send a request on a new connection, which cannot have been closed since its last request."""
        connection = await self._connected(origin, deadline)
        answered = connection.request(request, self._loop.time(), deadline, on_headers)
        try:
            return await answered
        except asyncio.CancelledError:
            connection.cancel(answered)
            raise

    def _kept(self, origin: Origin, now: float) -> Http1Connection | None:
        """Return the connection that was used last, if one can be used again."""
        idle = origin.idle
        while idle:
            connection = idle.pop()
            if connection.is_open and now < connection.heard_at + KEEP_ALIVE:
                return connection
            connection.abort()
        return None

    async def _connected(self, origin: Origin, deadline: float) -> Http1Connection:
        """Return a new connection."""
        until = min(deadline, self._loop.time() + self._limits.connect)
        try:
            async with asyncio.timeout_at(until):
                connected = await self._connect(origin)
        except TimeoutError as error:
            raise NoResponse("while connecting", timed_out=True, reached=False) from error
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message
            raise NoResponse(f"the certificate is not accepted: {reason}", reached=False) from error
        except ssl.CertificateError as error:
            raise NoResponse(f"the certificate is not accepted: {type(error).__name__}", reached=False) from error
        except OSError as error:
            raise NoResponse(f"cannot connect: {_reason(error)}", reached=False) from error
        except RuntimeError as error:
            # uvloop raises this, instead of an OSError, for a connection that has just been closed.
            if "closed" not in str(error):
                raise
            raise NoResponse("the connection was closed", reached=False) from error
        if not connected.is_open:  # by what it has sent unasked, or by its end
            raise NoResponse("the connection was closed", reached=False)
        self._connections.add(connected)
        if self._watch is None:
            self._watch = self._loop.call_later(self._check_every, self._check)
        return connected

    async def _connect(self, origin: Origin) -> Http1Connection:
        loop = self._loop
        addresses = await origin.addresses()
        try:
            connected = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=loop
            )
        except OSError:
            origin.forget_addresses()
            raise
        # From here on the loop closes the socket, also if it fails.
        _, protocol = await loop.create_connection(
            lambda: Http1Connection(self._limits.body, origin.idle, self._ended),
            sock=connected,
            ssl=self._tls if origin.is_tls else None,
            server_hostname=origin.host.rstrip(".") if origin.is_tls else None,
        )
        return protocol

    def _origin_of(self, url: str) -> Origin:
        origin = next((origin for origin in self._origins.values() if url.startswith(origin.root)), None)
        if origin is None:
            origin = Origin.of(url)
            origin = self._origins.setdefault(origin.root, origin)
        return origin

    def _ended(self, connection: Http1Connection) -> None:
        self._connections.discard(connection)
        if self._closed is not None and not self._connections:
            self._closed.set()

    def _check(self) -> None:
        """End the requests whose time is over, and connections that nobody has used for long."""
        now, read = self._loop.time(), self._limits.read
        for origin in self._origins.values():
            origin.close_unused(now - KEEP_ALIVE)
        for connection in [connection for connection in self._connections if connection.is_late(now, read)]:
            connection.fail(NoResponse("while waiting for the response", timed_out=True))
        self._watch = self._loop.call_later(self._check_every, self._check) if self._connections else None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failure").replace("_", " ").lower()
    return error.strerror or type(error).__name__
