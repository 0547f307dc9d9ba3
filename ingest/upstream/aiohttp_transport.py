"""Requests by aiohttp: the default, as the service needs aiohttp anyway."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ingest.upstream.transport import DNS_CACHE, KEEP_ALIVE, Declined, NoAnswer, Options, TooLarge, has_document

_CHUNK = 64 * 1024


class AiohttpTransport:
    """One session for the whole process, for its connections and its DNS cache."""

    def __init__(self, session: aiohttp.ClientSession, options: Options) -> None:
        self._session = session
        # Not the session's: a tunnel through a proxy would begin with telling it the token, as of aiohttp 3.14.
        self._headers = CIMultiDict(options.headers)
        self._body_limit = options.limits.body

    @classmethod
    @asynccontextmanager
    async def open(cls, options: Options) -> AsyncIterator[Self]:
        """A transport with its session; the worker's slots bound its connections, so the session does not."""
        limits = options.limits
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=DNS_CACHE,
                keepalive_timeout=KEEP_ALIVE,
                ssl=_trusting() if options.is_tls else True,
            ),
            timeout=aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect, sock_read=limits.read),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=options.proxy,
        ) as session:
            yield cls(session, options)

    async def get(self, url: str) -> bytes:
        """See `Transport`."""
        try:
            async with self._session.get(
                URL(url, encoded=True), headers=self._headers, allow_redirects=False
            ) as response:
                if not has_document(response.status):
                    raise Declined(response.status, response.headers)
                return await self._body(response)
        except aiohttp.ClientHttpProxyError as error:
            if error.status == 407:
                raise Declined(407, error.headers or {}) from error
            raise NoAnswer(f"the proxy refuses the connection with HTTP {error.status}", reached=False) from error
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer(_unconnected(error), reached=False) from error
        except TimeoutError as error:
            unconnected = isinstance(error, aiohttp.ConnectionTimeoutError)
            text = "while connecting" if unconnected else "while waiting for it"
            raise NoAnswer(text, in_time=False, reached=not unconnected) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_said_of(error)) from error
        except RuntimeError as error:
            # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
            if "handler is closed" not in str(error):
                raise
            raise NoAnswer("the connection was closed") from error

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
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


def _trusting() -> ssl.SSLContext:
    """Whom Python trusts now. aiohttp's own is of when it was imported, which in a worker process was before the fork."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unconnected(error: aiohttp.ClientConnectorError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = error.certificate_error
            reason = why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else type(why).__name__
            return f"the certificate is not accepted: {reason}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name of the host cannot be resolved: {_reason(error.os_error)}"
        case _:
            return f"cannot connect: {_reason(error.os_error)}"


def _said_of(error: Exception) -> str:
    """What went wrong, as a sentence, without a URL or anything that the server sent: either may hold a secret."""
    match error:
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before the answer"
        case aiohttp.ClientPayloadError():
            # Its text is the representation of its cause.
            return f"the body of the answer cannot be read: {_reason(error.__cause__)}"
        case aiohttp.ClientResponseError():
            return "the answer is not valid HTTP"
        case aiohttp.InvalidURL():
            return "the address is no URL of HTTP"
        case OSError():
            return f"the connection failed: {_reason(error)}"
        case _:
            return f"the request failed: {type(error).__name__}"


def _reason(error: BaseException | None) -> str:
    match error:
        case aiohttp.http_exceptions.ContentLengthError():
            return "it ended before its announced length"
        case aiohttp.http_exceptions.TransferEncodingError():
            return "it ended before its last chunk, or is not well-formed"
        case aiohttp.http_exceptions.ContentEncodingError():
            return "it is not packed as its Content-Encoding says"
        case ssl.SSLError():
            return (error.reason or "a failure of TLS").replace("_", " ").lower()
        case OSError(strerror=str(text)) if text:
            return text
        case _:
            return "it ended early" if error is None else type(error).__name__
