"""Fetches order documents over HTTP, by one session for the whole process.

Nothing here changes anything anywhere: a fetch that is cancelled or dies has not happened.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from urllib.parse import quote

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from yarl import URL

from ingest.domain.delivery import DeadReason, Fetched
from ingest.domain.errors import Fault, PermanentFault, TransientFault
from ingest.telemetry.board import Histogram
from ingest.upstream.answers import code_of, fault_of

_CHUNK = 64 * 1024
_REDIRECTS = 5


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """How long and how much; times in seconds, the body in bytes.

    Attributes:
        total: one request, from its start to the last byte of the answer.
        tries: quick tries within one attempt.
    """

    connect: float
    read: float
    total: float
    body: int
    tries: int


class UpstreamClient:
    """The external API, through aiohttp.

    Args:
        session: shared by all requests, for its connections and its DNS cache.
        template: URL with `{order_id}`.
        seconds: histograms by code.
        now: the clock that stamps what was fetched; one for all workers, as the later fetch wins.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._session = session
        self._before, self._after = template.split("{order_id}")
        self._limits = limits
        self._seconds = seconds
        self._now = now

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        template: str,
        token: str | None,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
    ) -> AsyncIterator[Self]:
        """A client with its session; the worker's slots bound its connections, so the session does not."""
        headers = {"Accept": "application/json", "User-Agent": "order-ingest"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect, sock_read=limits.read)
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, keepalive_timeout=30)
        async with aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            yield cls(session, template, limits, seconds, now)

    async def fetch(self, order_id: str) -> Fetched:
        """The document of one order, as sent, with the time at which the successful try began.

        Raises:
            TransientFault: after the quick tries are used up.
            ThrottledFault: if the API asks to wait.
            CredentialFault: if it refuses our credential.
            PermanentFault: if it has no such order, refuses it, or sends too much.
        """
        url = self._url(order_id)
        try:
            return await self._try(url)
        except TransientFault as error:
            return await self._try_again(url, error)

    async def fetch_once(self, order_id: str) -> Fetched:
        """As `fetch`, without the quick tries: while the API is away, each request is one too many."""
        return await self._try(self._url(order_id))

    def _url(self, order_id: str) -> URL:
        return URL(self._before + quote(order_id, safe="") + self._after, encoded=True)

    async def _try_again(self, url: URL, first: TransientFault) -> Fetched:
        """Go on after a failed first try, which went without tenacity: that would double the cost of a success."""
        failed: TransientFault | None = first

        async def next_try() -> Fetched:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            return await self._try(url)

        # Full jitter: what failed together does not come back together.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientFault),
            stop=stop_after_attempt(self._limits.tries),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        return await retrying(next_try)

    async def _try(self, url: URL) -> Fetched:
        started = time.monotonic()
        try:
            return await self._request(url, started)
        except Fault as fault:
            fault.asked_at = started
            raise

    async def _request(self, url: URL, started: float) -> Fetched:
        code, asked_at = "error", self._now()
        try:
            async with self._session.get(url, max_redirects=_REDIRECTS) as response:
                code = code_of(response.status)
                fault = fault_of(response.status, response.headers, asked_at)
                if fault is not None:
                    raise fault
                return Fetched(await self._body(response), asked_at)
        except aiohttp.ClientConnectorError as error:
            raise TransientFault(f"{type(error).__name__}: {error}"[:300], reached=False) from error
        except TimeoutError as error:
            code = "timeout"
            raise TransientFault(f"no answer in time ({type(error).__name__})") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # aiohttp names hosts and reasons here, never headers; some of its errors have no text.
            code = "error"
            raise TransientFault(f"{type(error).__name__}: {error}"[:300]) from error
        except RuntimeError as error:
            # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
            if "handler is closed" not in str(error):
                raise
            raise TransientFault("the connection was closed") from error
        finally:
            self._seconds[code].observe(time.monotonic() - started)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._limits.body
        length = response.content_length
        if length is not None and length > limit:
            raise _too_large(limit)
        if length is not None and "Content-Encoding" not in response.headers:
            return await response.read()
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
        return bytes(body)


def _too_large(limit: int) -> PermanentFault:
    return PermanentFault(DeadReason.INVALID_ORDER, f"the body is larger than {limit} bytes")
