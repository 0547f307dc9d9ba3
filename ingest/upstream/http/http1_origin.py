"""A server of the external API for the native transport: its addresses, its idle connections, the head of its requests."""

import asyncio
import socket
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs

from ingest.upstream.http.transport import DNS_CACHE, Method, NoResponse

if TYPE_CHECKING:
    from ingest.upstream.http.http1_connection import Http1Connection

_PORTS = {"http": 80, "https": 443}
_ACCEPTED = (("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"), ("User-Agent", "order-ingest"))

# A server may announce a body that it does not send, while it rejects many requests.
_MOST_WAITING = 64


class Origin:
    """A scheme, host and port.

    Args:
        prefix: what its URLs begin with.
        fixed: headers of all requests, unless a request sets its own.

    Attributes:
        root: the prefix with the slash that begins a path: another host's name may begin as this one's.
        idle: connections that wait for a request, the one used last at the end.
        waiting: connections that wait for the rest of an error's body, in the order in which that began.
    """

    def __init__(self, prefix: str, host: str, port: int, *, is_tls: bool, fixed: tuple[tuple[str, str], ...]) -> None:
        self.root = f"{prefix}/"
        self.host = host
        self.port = port
        self.is_tls = is_tls
        self.idle: list[Http1Connection] = []
        self.waiting: dict[Http1Connection, None] = {}
        self._fixed = fixed
        self._path_at = len(prefix)
        # The headers given last, and what follows the target of a GET with them: requests share a mapping.
        self._given: Mapping[str, str] | None = None
        self._common = ""
        self._found: list[aiohappyeyeballs.AddrInfoType] = []
        self._known_until = 0.0
        self._resolving: asyncio.Future[str | None] | None = None

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the origin of a URL.

        Raises:
            NoResponse: it is no HTTP URL.
        """
        try:
            parts = urlsplit(url)
            usual_port = _PORTS[parts.scheme]
            host, port = parts.hostname or "", parts.port or usual_port
            host = host if host.isascii() else host.encode("idna").decode()
            prefix = url[: url.index("://") + 3] + parts.netloc
        except (ValueError, KeyError):
            raise NoResponse("the address is not an HTTP URL", reached=False) from None
        if not url.startswith(prefix):
            raise NoResponse("the address is not an HTTP URL", reached=False)
        named = f"[{host}]" if ":" in host else host
        at = named if port == usual_port else f"{named}:{port}"
        fixed: tuple[tuple[str, str], ...] = (("Host", at), *_ACCEPTED)
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            fixed = (*fixed, ("Authorization", f"Basic {b64encode(user.encode()).decode()}"))
        return cls(prefix, host, port, is_tls=parts.scheme == "https", fixed=fixed)

    def request(self, url: str, headers: Mapping[str, str], method: Method, body: bytes | None) -> bytes:
        """Return a request as it is sent.

        Raises:
            NoResponse: the URL cannot be requested.
        """
        if headers is not self._given:
            self._common, self._given = self._common_of(headers), headers
        target = url[self._path_at :]
        if not (target.isascii() and target.isprintable()) or " " in target or "#" in target or target[:1] != "/":
            target = _target(target)
        if body is None and method == "GET":
            return f"GET {target}{self._common}".encode("latin-1")
        sent = body or b""
        return f"{method} {target}{self._common[:-2]}Content-Length: {len(sent)}\r\n\r\n".encode("latin-1") + sent

    def known_addresses(self) -> list[aiohappyeyeballs.AddrInfoType] | None:
        """Return the addresses of the host, if they need not be resolved."""
        return self._found if asyncio.get_running_loop().time() < self._known_until else None

    async def addresses(self) -> list[aiohappyeyeballs.AddrInfoType]:
        """Return the addresses of the host. Concurrent calls share one lookup.

        Raises:
            NoResponse: the name cannot be resolved.
        """
        if (known := self.known_addresses()) is not None:
            return known
        resolving = self._resolving
        if resolving is None:
            resolving = self._resolving = asyncio.get_running_loop().create_future()
            await self._resolve(resolving)
        else:
            await asyncio.wait([resolving])
            if resolving.cancelled():  # with its first caller
                return await self.addresses()
        if (reason := resolving.result()) is not None:
            raise NoResponse(f"the host name cannot be resolved: {reason}", reached=False)
        return self._found

    def next_first(self) -> None:
        """Let the next connection begin with another address, of the same family as the last: each gets its share."""
        if len(self._found) > 1:
            family = self._found[0][0]
            alike = [address for address in self._found if address[0] == family]
            others = [address for address in self._found if address[0] != family]
            self._found = [*alike[1:], alike[0], *others]

    def forget_addresses(self) -> None:
        """Resolve the name again for the next connection: the host may have another address by now."""
        self._known_until = 0.0

    def close_unused(self, since: float) -> None:
        """Close the connections that have not been used since then."""
        idle = self.idle
        while idle and (not idle[0].is_open or idle[0].heard_at < since):
            idle.pop(0).abort()

    def close_waiting(self) -> None:
        """Close those of the connections that wait for the rest of an error's body that are too many, before one more is opened."""
        waiting = self.waiting
        while len(waiting) > _MOST_WAITING:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.abort()

    async def _resolve(self, resolving: "asyncio.Future[str | None]") -> None:
        """Look up the addresses. The future gets the reason if there are none."""
        loop = asyncio.get_running_loop()
        try:
            self._found = [*await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)]
            self._known_until = loop.time() + DNS_CACHE
            resolving.set_result(None)
        except (socket.gaierror, UnicodeError) as error:
            resolving.set_result(getattr(error, "strerror", None) or "it is not a host name")
        finally:
            resolving.cancel()  # without effect if there is a result
            self._resolving = None

    def _common_of(self, headers: Mapping[str, str]) -> str:
        given = {name.lower() for name in headers}
        fixed = [(name, value) for name, value in self._fixed if name.lower() not in given]
        lines = [f"{name}: {value}" for name, value in (*fixed, *headers.items())]
        # Checked here for all requests with these headers.
        if any(character in line for line in lines for character in "\r\n\0"):
            raise ValueError("a header of the request contains a line break")
        return "\r\n".join([" HTTP/1.1", *lines, "", ""])


def _target(rest: str) -> str:
    """Return the target of a request, of what follows the origin in its URL."""
    target = rest.partition("#")[0]
    target = target if target.startswith("/") else f"/{target}"
    if not (target.isascii() and target.isprintable()) or " " in target:
        raise NoResponse("the address is not an HTTP URL", reached=False)
    return target
