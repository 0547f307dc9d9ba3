"""Requests by aiohttp: the default, as the service needs aiohttp anyway."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ingest.upstream.transport import DNS_CACHE, KEEP_ALIVE, REDIRECTS, Declined, NoAnswer, Options, TooLarge

_CHUNK = 64 * 1024
_FIRST_NOT_FOLLOWED = REDIRECTS + 1


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
                URL(url, encoded=True), headers=self._headers, max_redirects=_FIRST_NOT_FOLLOWED
            ) as response:
                if not 200 <= response.status < 300:
                    raise Declined(response.status, response.headers)
                return await self._body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            raise NoAnswer(_named(error), reached=False) from error
        except TimeoutError as error:
            unconnected = isinstance(error, aiohttp.ConnectionTimeoutError)
            raise NoAnswer(type(error).__name__, in_time=False, reached=not unconnected) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_named(error)) from error
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


def _named(error: Exception) -> str:
    """What went wrong, without a URL, which may hold a key; some of aiohttp's errors have no text."""
    match error:
        case aiohttp.ClientResponseError():
            text = error.message
        case aiohttp.RedirectClientError() | aiohttp.InvalidURL():
            text = "a redirect to what is no URL of HTTP"
        case _:
            text = str(error)
    return f"{type(error).__name__}: {text}"
