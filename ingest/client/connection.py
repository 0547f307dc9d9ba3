"""Sends requests to one origin, with the API key, and to no other."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from yarl import URL

from ingest.client.errors import ApiUnavailable, UnexpectedResponse
from ingest.client.responses import ApiResponse
from ingest.domain.fetch.request_headers import check_token
from ingest.telemetry.tracing.program import program_context

_BODY_LIMIT = 64 * 1024 * 1024
_CHUNK = 64 * 1024


class _Secret(str):
    """A text that is not shown where local variables are, such as in error reports."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """The URL of the API and the key of the caller, as `Client.connect` takes them, checked when it is made.

    Raises:
        ValueError: If one of them cannot be used.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    allow_http: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url, allow_http=self.allow_http))
        if self.key is not None:
            try:
                object.__setattr__(self, "key", _Secret(check_token(self.key)))
            except ValueError as error:
                raise ValueError(f"the API key {error}") from None
        self.context()

    def context(self) -> ssl.SSLContext | bool:
        """The TLS settings of aiohttp."""
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            reason = "it has no certificates in PEM format" if isinstance(error, ssl.SSLError) else "it cannot be read"
            raise ValueError(f"the CA file {self.ca_file}: {reason}") from None


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        path: Below the API's URL, encoded, with the query.
        body: The body, with the media type `content_type`, or None.
        key: The idempotency key, or None for none.
    """

    method: str
    path: str
    body: bytes | None = None
    content_type: str = ""
    key: str | None = None


class ApiConnection:
    """Connections to one API."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: ApiEndpoint) -> None:
        self._session = session
        self._url = endpoint.url
        self._secret = endpoint.key
        self._headers = {
            "Accept": "application/json, application/problem+json",
            # No response is so large that it is worth the risk that a small one becomes huge here.
            "Accept-Encoding": "identity",
            "User-Agent": f"order-ingest/{version('order-ingest')}",
        }
        if endpoint.key is not None:
            self._headers["Authorization"] = _Secret(f"Bearer {endpoint.key:s}")

    @classmethod
    @asynccontextmanager
    async def open(cls, endpoint: ApiEndpoint) -> AsyncIterator[Self]:
        """Connect when the first request is sent."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=endpoint.context()),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as session:
            yield cls(session, endpoint)

    async def send(self, request: Request, seconds: float) -> ApiResponse:
        """Send a request and read the response, within `seconds`.

        Raises:
            ApiUnavailable: If there is no whole response in time.
            UnexpectedResponse: If it is too large or compressed.
        """
        headers = dict(self._headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if request.key is not None:
            headers["Idempotency-Key"] = quoted(request.key)
        if (context := program_context()) is not None:
            headers["traceparent"] = context
        failure = ""
        try:
            async with self._session.request(
                request.method,
                URL(self._url + request.path, encoded=True),
                headers=headers,
                data=request.body,
                # The key is sent only to this origin. If the API moves, its URL has to be changed here.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as response:
                return ApiResponse(response.status, response.headers, await _body(response))
        except aiohttp.ClientConnectorCertificateError as error:
            why = error.certificate_error
            reason = why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else type(why).__name__
            refused = f"the certificate of {urlsplit(self._url).hostname} is not accepted: {reason}"
            raise UnexpectedResponse(refused) from None
        except TimeoutError:
            failure = f"no response within {seconds:.3g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _describe(error)
        except RuntimeError as error:
            # uvloop raises this, instead of an OSError, for a connection that has just been closed.
            if "handler is closed" not in str(error):
                raise
            failure = "the connection was closed"
        # Without their cause, because aiohttp's exceptions contain the request's headers with the key.
        raise ApiUnavailable(failure) from None

    def hide(self, text: str) -> str:
        """The text without the API key, which a server may have sent back."""
        return text.replace(self._secret, "***") if self._secret else text


def quoted(key: str) -> str:
    """The idempotency key as the header's String (RFC 9651)."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnexpectedResponse("the response is compressed, which was not requested", status=response.status)
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > _BODY_LIMIT:
            raise UnexpectedResponse(f"the response is larger than {_BODY_LIMIT:,} bytes", status=response.status)
    return bytes(body)


def _checked_url(url: str, *, allow_http: bool) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed, and raises, on access only
    except ValueError:
        raise ValueError("the URL of the API cannot be read, such as https://orders.example") from None
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("the URL of the API must start with https:// and name a host, such as https://orders.example")
    if "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError(
            "the URL of the API must contain no user, query or fragment. Pass the key as the argument `key`"
        )
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError("the API key would be sent without TLS: use https://, or allow_http=True")
    return urlunsplit(parts._replace(path=parts.path.rstrip("/")))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _describe(error: Exception) -> str:
    """Without the server's data, and without our headers."""
    match error:
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {error.os_error.strerror or type(error.os_error).__name__}"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before the response"
        case aiohttp.ClientPayloadError():
            return "the response has ended early"
        case aiohttp.ClientResponseError():
            return "the response is not HTTP"
        case OSError():
            return f"the connection failed: {error.strerror or type(error).__name__}"
        case _:
            return f"the request failed: {type(error).__name__}"
