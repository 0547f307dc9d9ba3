"""A server of the external API for the native transport: its addresses, its idle connections, the head of its requests."""

import asyncio
import re
import socket
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import AddrInfoType
from multidict import CIMultiDict

from ingest.upstream.http.transport import DEFAULT_PORTS, DNS_CACHE, Method, NoResponse

if TYPE_CHECKING:
    from ingest.upstream.http.http1_connection import Http1Connection

_LINE_BREAK = re.compile("[\r\n\0]")


class Origin:
    """A scheme, host and port.

    Args:
        url: any of its URLs.

    Attributes:
        root: its URLs up to the slash that begins the path.
        idle: connections that wait for a request, the one used last at the end.

    Raises:
        NoResponse: it is no HTTP URL.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            usual_port = DEFAULT_PORTS[parts.scheme]
            host, port = parts.hostname or "", parts.port or usual_port
            self.host = host if host.isascii() else host.encode("idna").decode()
            prefix = url[: url.index("://") + 3] + parts.netloc
        except (ValueError, KeyError):
            raise _no_url() from None
        if not url.startswith(prefix):
            raise _no_url()
        self.port = port
        self.root = f"{prefix}/"
        self._path_at = len(prefix)
        self.is_tls = parts.scheme == "https"
        self.idle: list[Http1Connection] = []
        named = f"[{self.host}]" if ":" in self.host else self.host
        self._fixed = {"Host": named if port == usual_port else f"{named}:{port}", "Accept-Encoding": "gzip, deflate"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._fixed["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        # The headers of the last request, and their lines, because requests share a mapping.
        self._headers: Mapping[str, str] = {}
        self._lines = self._lines_of(self._headers)
        self._found: list[AddrInfoType] = []
        self._known_until = 0.0
        self._resolving = asyncio.Lock()

    def request(self, url: str, headers: Mapping[str, str], method: Method, body: bytes | None) -> bytes:
        """Return a request for a URL of this origin as it is sent.

        Raises:
            NoResponse: the URL cannot be requested.
            ValueError: a header contains a line break.
        """
        target = url[self._path_at :]
        if not (target.isascii() and target.isprintable()) or " " in target or "#" in target or target[:1] != "/":
            target = _target(target)
        if headers is not self._headers:
            self._lines, self._headers = self._lines_of(headers), headers
        if body is None and method == "GET":
            return f"GET {target} HTTP/1.1\r\n{self._lines}\r\n".encode("latin-1")
        sent = body or b""
        head = f"{method} {target} HTTP/1.1\r\n{self._lines}Content-Length: {len(sent)}\r\n\r\n"
        return head.encode("latin-1") + sent

    def _lines_of(self, headers: Mapping[str, str]) -> str:
        sent = CIMultiDict(self._fixed)
        sent.update(headers)
        lines = [f"{name}: {value}\r\n" for name, value in sent.items()]
        if any(_LINE_BREAK.search(line, 0, len(line) - 2) for line in lines):
            raise ValueError("a header of the request contains a line break")
        return "".join(lines)

    async def addresses(self) -> list[AddrInfoType]:
        """Return the addresses of the host, each time with another one first. Concurrent calls share one lookup.

        Raises:
            NoResponse: the name cannot be resolved.
        """
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if loop.time() >= self._known_until:
                try:
                    self._found = [*await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)]
                except (socket.gaierror, UnicodeError) as error:
                    reason = getattr(error, "strerror", None) or "it is not a host name"
                    raise NoResponse(f"the host name cannot be resolved: {reason}", reached=False) from None
                self._known_until = loop.time() + DNS_CACHE
        self._found = rotated(self._found)
        return self._found

    def forget_addresses(self) -> None:
        """Resolve the name again for the next connection, because the host may have another address by now."""
        self._known_until = 0.0


def rotated(addresses: Sequence[AddrInfoType]) -> list[AddrInfoType]:
    """Put the next address of the preferred family first, so that each of them gets its share of the connections."""
    family = addresses[0][0]
    alike = [address for address in addresses if address[0] == family]
    others = [address for address in addresses if address[0] != family]
    return [*alike[1:], alike[0], *others]


def _target(path: str) -> str:
    """Return the target of a request for the path of a URL, which may have a fragment, or none of a slash."""
    target = path.partition("#")[0]
    if not (target.isascii() and target.isprintable()) or " " in target:
        raise _no_url()
    return target if target.startswith("/") else f"/{target}"


def _no_url() -> NoResponse:
    return NoResponse("the address is not an HTTP URL", reached=False)
