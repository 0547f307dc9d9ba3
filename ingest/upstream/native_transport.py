"""The transport on asyncio protocols, parsed by llhttp: HTTP/1.1 kept alive, for a fraction of aiohttp's processor time.

It does what an API needs: any method with headers and a body, HTTPS, gzip and deflate. Where a proxy is set, aiohttp sends the
requests.
"""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs

from ingest.upstream.http1_connection import ClosedEarly, Http1Connection
from ingest.upstream.http1_response import ResponseParser, head_of
from ingest.upstream.tls import context_of
from ingest.upstream.transport import (
    DNS_CACHE,
    KEEP_ALIVE,
    Method,
    NoResponse,
    OnHeaders,
    Options,
    Transport,
)

_HAPPY_EYEBALLS_DELAY = 0.25
_CLOSE_SECONDS = 1.0
_PORTS = {"http": 80, "https": 443}
_AFTER_ORIGIN = ("", "/", "?", "#")
_ACCEPTED = (("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"), ("User-Agent", "order-ingest"))


@dataclass(slots=True)
class _Origin:
    """A server, and the connections to it.

    Attributes:
        prefix: what its URLs begin with.
        fixed: headers of all requests.
        idle: connections that wait for a request, the one used last at the end.
        addresses: of the host, until `known_until`.
    """

    prefix: str
    host: str
    port: int
    is_tls: bool
    fixed: tuple[tuple[str, str], ...] = field(repr=False)
    idle: list[Http1Connection] = field(default_factory=list)
    addresses: list[aiohappyeyeballs.AddrInfoType] = field(default_factory=list)
    known_until: float = 0.0


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
        self._limits = options.limits
        self._tls = context_of(options.tls) if options.is_tls else None
        self._origins: dict[str, _Origin] = {}
        self._origin: _Origin | None = None
        self._connections: set[Http1Connection] = set()
        # The headers given last, and the part of a request's head that is made of them: requests share a mapping.
        self._given: Mapping[str, str] | None = None
        self._heads: dict[str, str] = {}
        limits = options.limits
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
        # What follows the prefix must begin a path: another host's name may begin as this one's.
        if origin is None or not url.startswith(origin.prefix) or url[len(origin.prefix) :][:1] not in _AFTER_ORIGIN:
            origin = self._origin = self._origin_of(url)
        request = self._request(origin, url, headers, method, body)
        deadline = self._loop.time() + self._limits.total
        try:
            response, connection = await self._exchange(origin, request, deadline)
        except ClosedEarly:
            # The server closed a kept connection as we used it, which is its right. A GET may be sent again; the fresh connection
            # cannot fail in this way.
            if method != "GET":
                raise
            self._drop_idle(origin)
            response, connection = await self._exchange(origin, request, deadline)
        try:
            document = response.document()
            if on_headers is not None:
                on_headers(response.named_headers())
            return document
        finally:
            # Only now: the next request empties the parser.
            if connection.ready():
                origin.idle.append(connection)
            else:
                connection.abort()

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

    async def _exchange(
        self, origin: _Origin, request: bytes, deadline: float
    ) -> tuple[ResponseParser, Http1Connection]:
        connection = self._kept(origin) or await self._connected(origin, deadline)
        if self._watch is None:
            self._watch = self._loop.call_later(self._check_every, self._check)
        try:
            return await connection.request(request, deadline), connection
        except asyncio.CancelledError:
            connection.abort()
            raise

    def _kept(self, origin: _Origin) -> Http1Connection | None:
        """Return the connection that was used last, if one can be used again."""
        oldest = self._loop.time() - KEEP_ALIVE
        while origin.idle:
            connection = origin.idle.pop()
            if connection.is_open and connection.heard_at > oldest:
                return connection
            connection.abort()
        return None

    def _drop_idle(self, origin: _Origin) -> None:
        for connection in origin.idle:
            connection.abort()
        origin.idle.clear()

    async def _connected(self, origin: _Origin, deadline: float) -> Http1Connection:
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
        self._connections.add(connected)
        return connected

    async def _connect(self, origin: _Origin) -> Http1Connection:
        loop = self._loop
        if loop.time() >= origin.known_until:
            try:
                found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            except socket.gaierror as error:
                reason = f"the host name cannot be resolved: {error.strerror}"
                raise NoResponse(reason, reached=False) from error
            origin.addresses, origin.known_until = list(found), loop.time() + DNS_CACHE
        try:
            connected = await aiohappyeyeballs.start_connection(
                origin.addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=loop
            )
        except OSError:
            origin.known_until = 0.0  # the host may have another address by now
            raise
        # From here on the loop closes the socket, also if it fails.
        _, protocol = await loop.create_connection(
            lambda: Http1Connection(self._limits.body, self._ended),
            sock=connected,
            ssl=self._tls if origin.is_tls else None,
            server_hostname=origin.host if origin.is_tls else None,
        )
        return protocol

    def _ended(self, connection: Http1Connection) -> None:
        self._connections.discard(connection)
        if self._closed is not None and not self._connections:
            self._closed.set()

    def _check(self) -> None:
        """End the requests whose time is over, and connections that nobody has used for long."""
        now, limits = self._loop.time(), self._limits
        for origin in self._origins.values():
            while origin.idle and (not origin.idle[0].is_open or origin.idle[0].heard_at + KEEP_ALIVE < now):
                origin.idle.pop(0).abort()
        idle = {connection for origin in self._origins.values() for connection in origin.idle}
        for connection in [*self._connections]:
            if connection not in idle and now > min(connection.deadline, connection.heard_at + limits.read):
                connection.fail(NoResponse("while waiting for the response", timed_out=True))
        self._watch = self._loop.call_later(self._check_every, self._check) if self._connections else None

    def _request(
        self, origin: _Origin, url: str, headers: Mapping[str, str], method: Method, body: bytes | None
    ) -> bytes:
        if headers is not self._given:
            self._given, self._heads = headers, {}
        common = self._heads.get(origin.prefix)
        if common is None:
            given = {name.lower() for name in headers}
            fixed = [(name, value) for name, value in origin.fixed if name.lower() not in given]
            # Checked as a whole here, and not for each request.
            head = head_of("GET", "/", [*fixed, *headers.items()]).decode("latin-1")
            common = self._heads[origin.prefix] = head.removeprefix("GET / HTTP/1.1").removesuffix("\r\n")
        target = url[len(origin.prefix) :].partition("#")[0]
        target = target if target.startswith("/") else f"/{target}"
        if not target.isascii() or not target.isprintable() or " " in target:
            raise NoResponse("the address is not an HTTP URL", reached=False)
        if body is None and method == "GET":
            return f"{method} {target} HTTP/1.1{common}\r\n".encode("latin-1")
        sent = body or b""
        return f"{method} {target} HTTP/1.1{common}Content-Length: {len(sent)}\r\n\r\n".encode("latin-1") + sent

    def _origin_of(self, url: str) -> _Origin:
        """Return the origin of a URL, with its connections.

        Raises:
            NoResponse: it is no HTTP URL.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise NoResponse("the address is not an HTTP URL", reached=False) from None
        prefix = f"{parts.scheme}://{parts.netloc}"
        origin = self._origins.get(prefix)
        if origin is None:
            named = f"[{host}]" if ":" in host else host
            at = named if port == _PORTS[scheme] else f"{named}:{port}"
            fixed: tuple[tuple[str, str], ...] = (("Host", at), *_ACCEPTED)
            if parts.username is not None:
                user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                fixed = (*fixed, ("Authorization", f"Basic {b64encode(user.encode()).decode()}"))
            origin = self._origins[prefix] = _Origin(prefix, host, port, scheme == "https", fixed)
        return origin


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failure").replace("_", " ").lower()
    return error.strerror or type(error).__name__
