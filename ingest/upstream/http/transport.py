"""The port between the client and its HTTP transport: one request that returns a document or raises an exception.

There are two implementations of the same contract, which `tests/contract/upstream` verifies for both: `native_transport`, the
default, and `aiohttp_transport`, which can use a proxy.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from ingest.domain.masking import mask_urls
from ingest.domain.os_errors import is_exhaustion, reason_of
from ingest.upstream.http.tls_context import TlsMaterial, reason_of_tls

Kind = Literal["native", "aiohttp"]
Method = Literal["GET", "POST"]
# Called with the status and the headers of a response with a document.
OnHead = Callable[[int, Mapping[str, str]], None]

DEFAULT_PORTS = {"http": 80, "https": 443}
KEEP_ALIVE = 30
DNS_CACHE = 30
INVALID_HTTP = "the response is not valid HTTP"


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Limits of one request: times in seconds, the body in bytes.

    Attributes:
        total: from the start of the request to the last byte of the response.
        tries: immediate tries within one attempt.
    """

    connect: float
    read: float
    total: float
    body: int
    tries: int


class Options(msgspec.Struct, frozen=True):
    """Options that all requests of a transport share.

    Attributes:
        is_tls: whether requests use TLS.
        proxy: URL of the proxy for all requests, or None.
        tls: certificates, where they are not the system's.
        error_body: bytes of the body of a response without a document that are kept. With 0, it is not awaited.
    """

    limits: UpstreamLimits
    is_tls: bool
    proxy: str | None
    tls: TlsMaterial | None = None
    error_body: int = 0


class NoDocument(Exception):
    """A response without a document: its status is not 2xx, or is one without content.

    Attributes:
        headers: all headers of the response. Names are case-insensitive, and the first of several with one name is found.
        body: its body, or the beginning if it is longer than `Options.error_body` or ends early. Empty if it cannot be read.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body


class TooLarge(Exception):
    """The document is larger than the limit, by its Content-Length or by the received data. The rest was not read."""


class NoResponse(Exception):
    """No complete response was received.

    Attributes:
        timed_out: whether a time limit ended the request.
        reached: whether the external API may have received the request.
    """

    def __init__(self, error: str, *, timed_out: bool = False, reached: bool = True) -> None:
        # Libraries quote data from the server, of any length, and URLs that contain credentials.
        super().__init__(mask_urls(error)[:300])
        self.timed_out = timed_out
        self.reached = reached


class NoResources(NoResponse):
    """No connection could be opened, because no file descriptors or memory are left. The transport may be used again."""

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False)


class Transport(Protocol):
    """Requests over pooled connections. Cancelling a request ends it and leaves nothing behind."""

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_head: OnHead | None = None,
    ) -> bytes:
        """Return the decompressed body of a 2xx response. Redirects are not followed.

        The connection is used again only after a response whose status permits it, see `keeps_connection`.

        Args:
            url: already percent-encoded.
            headers: sent with it.
            method: of the request.
            body: sent with a POST.
            on_head: called with the response's status and headers before the document is returned. Names are case-insensitive.

        Raises:
            NoDocument: the status is not 2xx, or is 204 or 205, which have no body.
            TooLarge: the body exceeds the limit.
            NoResponse: no complete response was received.
            NoResources: no file descriptors or memory are left to open a connection.
            Exception: the transport itself has failed, not the external API or an order. It is not used again.
        """


def has_document(status: int) -> bool:
    """Return whether the body of a response with this status is a document."""
    return 200 <= status < 300 and status not in (204, 205)


def keeps_connection(status: int) -> bool:
    """Return whether the next request may go over the same connection after a response with this status.

    Behind a load balancer a connection leads to one server. If only that server fails or rejects us, a retry over the same connection
    would reach it again. A new connection may reach another server.
    """
    return status < 500 and status not in (401, 403, 408, 421)


def not_connected(error: BaseException | None) -> NoResponse:
    """Return the reason why no connection could be opened, without an address."""
    match error:
        case TimeoutError():
            return NoResponse("while connecting", timed_out=True, reached=False)
        case ssl.SSLCertVerificationError(verify_message=reason):
            return NoResponse(f"the certificate is not accepted: {reason}", reached=False)
        case ssl.SSLError():
            return NoResponse(f"cannot connect: {reason_of_tls(error)}", reached=False)
        case OSError() if is_exhaustion(error):
            return NoResources(f"cannot connect: {reason_of(error)}")
        case OSError():
            return NoResponse(f"cannot connect: {reason_of(error)}", reached=False)
        case _:
            # uvloop raises a RuntimeError for a connection that has just been closed.
            return NoResponse("the connection was closed", reached=False)
