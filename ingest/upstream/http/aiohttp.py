"""The transport on aiohttp, which can use a proxy."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Self

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from ingest.domain.os_errors import is_exhaustion, reason_of
from ingest.upstream.http.tls_context import is_alert, reason_of_tls, shared_context_of
from ingest.upstream.http.transport import (
    DNS_CACHE,
    INVALID_HTTP,
    KEEP_ALIVE,
    Method,
    NoDocument,
    NoResponse,
    OnHead,
    Options,
    TooLarge,
    has_document,
    keeps_connection,
    not_connected,
)

_CHUNK = 64 * 1024


class _Response(aiohttp.ClientResponse):
    """Closes its connection where the next request should not use it: a short response is in the pool again before we see it."""

    async def start(self, connection: Connection) -> Self:
        protocol = connection.protocol
        await super().start(connection)
        if protocol is not None and not keeps_connection(self.status):
            protocol.force_close()
            if self.content.is_eof():
                protocol.close()
        return self


class AiohttpTransport:
    """One session for the whole process, with its connection pool and DNS cache."""

    def __init__(self, session: aiohttp.ClientSession, options: Options) -> None:
        self._session = session
        self._body_limit = options.limits.body
        self._error_body = options.error_body

    @classmethod
    @asynccontextmanager
    async def open(cls, options: Options) -> AsyncIterator[Self]:
        """Open a transport with its session. The session does not limit connections, because the slots of the worker do."""
        limits = options.limits
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=DNS_CACHE,
                keepalive_timeout=KEEP_ALIVE,
                # aiohttp's own trust settings are loaded at import, which for a worker is before the fork.
                ssl=shared_context_of(options.tls) if options.is_tls else True,
            ),
            timeout=aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect, sock_read=limits.read),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=options.proxy,
            response_class=_Response,
        ) as session:
            yield cls(session, options)

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        method: Method = "GET",
        body: bytes | None = None,
        on_head: OnHead | None = None,
    ) -> bytes:
        """See `Transport`."""
        try:
            # Headers per request, because aiohttp 3.14 sends the session's headers, including the token, to a tunnelling proxy.
            async with self._session.request(
                method, _parsed(url), headers=headers, data=body, allow_redirects=False
            ) as response:
                if not has_document(response.status):
                    raise NoDocument(response.status, response.headers, await self._text_of_error(response))
                return await self._body(response, on_head)
        except aiohttp.ClientHttpProxyError as error:
            if error.status == 407:
                raise NoDocument(407, error.headers or {}) from error
            raise NoResponse(f"the proxy rejects the connection with HTTP {error.status}", reached=False) from error
        except aiohttp.ClientConnectorError as error:
            raise _not_connected(error) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise not_connected(error) from error
        except TimeoutError as error:
            raise NoResponse("while waiting for the response", timed_out=True) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoResponse(_describe(error), reached=not is_alert(error.__cause__)) from error
        except RuntimeError as error:
            if "closed" not in str(error):
                raise
            raise NoResponse("the connection was closed") from error

    async def _text_of_error(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the beginning of the body, as far as it arrives."""
        body = bytearray()
        with suppress(aiohttp.ClientError, OSError):  # includes time limits
            while len(body) < self._error_body and (part := await response.content.read(self._error_body - len(body))):
                body += part
        return bytes(body)

    async def _body(self, response: aiohttp.ClientResponse, on_head: OnHead | None) -> bytes:
        if on_head is not None:
            on_head(response.status, response.headers)
        length = response.content_length
        if length is not None and length > self._body_limit:
            raise TooLarge
        if length is not None and "Content-Encoding" not in response.headers:
            return await response.read()
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._body_limit:
                raise TooLarge
        return bytes(body)


def _parsed(url: str) -> URL:
    """Return a URL that is percent-encoded, but for a host that is not ASCII, which would be sent as it is."""
    parsed = URL(url, encoded=True)
    return parsed if url.isascii() or not parsed.raw_host else parsed.with_host(parsed.raw_host)


def _not_connected(error: aiohttp.ClientConnectorError) -> NoResponse:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return not_connected(error.certificate_error)
        case aiohttp.ClientConnectorDNSError() if not is_exhaustion(error.os_error):
            return NoResponse(f"the host name cannot be resolved: {_reason(error.os_error)}", reached=False)
        case _:
            return not_connected(error.os_error)


def _describe(error: Exception) -> str:
    """Describe an error, without the URL and without data from the server: either may contain a secret."""
    match error:
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before the response"
        case aiohttp.ClientPayloadError():
            # Its message is the repr of its cause.
            return f"the response body cannot be read: {_reason(error.__cause__)}"
        case aiohttp.ClientResponseError():
            return INVALID_HTTP
        case aiohttp.InvalidURL():
            return "the address is not an HTTP URL"
        case OSError():
            tls = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else None
            return f"the connection failed: {_reason(tls or error)}"
        case _:
            return f"the request failed: {type(error).__name__}"


def _reason(error: BaseException | None) -> str:
    match error:
        case aiohttp.http_exceptions.ContentLengthError():
            return "it is shorter than its Content-Length"
        case aiohttp.http_exceptions.TransferEncodingError():
            return "its chunked encoding is incomplete or malformed"
        case aiohttp.http_exceptions.ContentEncodingError():
            return "it is not compressed as its Content-Encoding declares"
        case ssl.SSLError():
            return reason_of_tls(error)
        case OSError(strerror=str(text)) if text:
            return reason_of(error)
        case _:
            return "it ended early" if error is None else type(error).__name__
