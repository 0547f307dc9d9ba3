"""Fetches order documents over HTTP, through one transport for the whole process.

Redirects are followed here, alike for both transports: within the same origin only.

Nothing here changes anything anywhere: a fetch that is cancelled or dies has not happened.
"""

import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Self, assert_never
from urllib.parse import quote

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from ingest.domain.delivery import DeadReason, RetryReason
from ingest.domain.errors import ConfigError, Fault, PermanentFault, TransientFault, TransportFault
from ingest.domain.fetching import Exchange, Fetched, FetchRequest
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.answers import breaks_off, code_of, fault_of
from ingest.upstream.redirects import MOST_REDIRECTS, RefusedRedirect, redirected
from ingest.upstream.renewal import Opener, RenewedTransport
from ingest.upstream.transport import Declined, Kind, NoAnswer, Options, TooLarge, Transport, UpstreamLimits

# Between the quick tries of one attempt, in seconds.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class UpstreamClient:
    """The external API.

    Args:
        template: URL with `{order_id}`.
        seconds: histograms by code.
        now: the clock that stamps what was fetched; one for all workers, as the later fetch wins.
        draw: a uniform random number between its arguments, for the pauses between quick tries.
    """

    def __init__(
        self,
        transport: RenewedTransport,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._transport = transport
        self._before, self._after = template.split("{order_id}")
        self._limits = limits
        self._seconds = seconds
        self._now = now
        self._draw = draw

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        template: str,
        token: str | None,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
        *,
        kind: Kind = "aiohttp",
        proxy: str | None = None,
    ) -> AsyncIterator[Self]:
        """A client with its transport; `proxy` is the URL of one that all requests go through."""
        headers = {"Accept": "application/json", "User-Agent": "order-ingest"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        options = Options(headers, limits, template.lower().startswith("https://"), proxy)
        opener = _opener(kind)
        async with cls.over(lambda: opener(options), template, limits, seconds, now) as client:
            yield client

    @classmethod
    @asynccontextmanager
    async def over(
        cls,
        opener: Opener,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[Self]:
        """A client over the transports that `opener` opens: one, and another when that has broken.

        `clock` tells how long a transport has been open.
        """
        async with RenewedTransport.open(opener, limits.total, clock) as transport:
            yield cls(transport, template, limits, seconds, now, draw)

    async def fetch(self, request: FetchRequest) -> Fetched:
        """The document of one order, as sent, with the time at which the successful try began.

        Raises:
            TransientFault: after the quick tries are used up.
            TransportFault: if it is our own client that fails, after those as well.
            ThrottledFault: if the API asks to wait.
            CredentialFault: if it refuses our credential.
            PermanentFault: if it has no such order, refuses it, or sends too much.
        """
        url = self._url(request.order_id)
        try:
            return await self._try(request, url)
        except TransientFault as error:
            return await self._try_again(request, url, error)

    async def fetch_once(self, request: FetchRequest) -> Fetched:
        """As `fetch`, without the quick tries: while the API is unavailable, each request is one too many."""
        return await self._try(request, self._url(request.order_id))

    def _url(self, order_id: str) -> str:
        # Most IDs are plain, and to see that costs a tenth of quoting them.
        plain = order_id.isalnum() and order_id.isascii()
        return self._before + (order_id if plain else quote(order_id, safe="")) + self._after

    async def _try_again(self, request: FetchRequest, url: str, first: TransientFault) -> Fetched:
        """Go on after a failed first try, which went without tenacity: that would double the cost of a success."""
        failed: TransientFault | None = first

        async def next_try() -> Fetched:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            return await self._try(request, url)

        # Full jitter: what failed together does not come back together.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientFault),
            stop=stop_after_attempt(self._limits.tries),
            wait=lambda state: self._draw(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (state.attempt_number - 1))),
            reraise=True,
        )
        return await retrying(next_try)

    async def _try(self, request: FetchRequest, url: str, redirects: int = MOST_REDIRECTS) -> Fetched:
        code, asked_at, started, get = "error", self._now(), time.monotonic(), self._transport.get
        try:
            body = await get(url)
            if body[-1:] == b"}" or not breaks_off(body):
                code = "2xx"
                return Fetched(body, asked_at)
        except Declined as answer:
            code = code_of(answer.status)
            target = self._target(request, url, answer, redirects, asked_at, started)
        except TooLarge:
            code = "2xx"
            error = f"the body is larger than {self._limits.body} bytes"
            raise _in(request, started, PermanentFault(DeadReason.INVALID_ORDER, error)) from None
        except NoAnswer as reason:
            code = "error" if reason.in_time else "timeout"
            text = str(reason) if reason.in_time else f"no answer in time ({reason})"
            retry = RetryReason.CONNECTION if reason.in_time else RetryReason.TIMEOUT
            raise _in(request, started, TransientFault(text, reached=reason.reached, reason=retry)) from reason
        except Exception as bug:  # what else a transport raises is no order's fault, and not the external API's
            await self._transport.replace(get, bug)
            raise _in(request, started, TransportFault(f"our HTTP client failed: {type(bug).__name__}")) from bug
        else:
            raise _in(
                request,
                started,
                TransientFault(f"the document breaks off after {len(body)} bytes", reason=RetryReason.TRUNCATED),
            )
        finally:
            self._seconds[code].observe(time.monotonic() - started)
        return await self._try(request, target, redirects - 1)

    def _target(
        self, request: FetchRequest, url: str, answer: Declined, redirects: int, asked_at: datetime, started: float
    ) -> str:
        """Where a redirect leads; any other answer without a document is a fault."""
        try:
            target = redirected(url, answer.status, answer.headers.get("Location"))
        except RefusedRedirect as refused:
            raise _in(request, started, TransientFault(f"HTTP {answer.status}: a redirect that {refused}")) from None
        if target is None:
            raise _in(request, started, fault_of(answer.status, answer.headers, asked_at)) from None
        if not redirects:
            raise _in(request, started, TransientFault(f"more than {MOST_REDIRECTS} redirects")) from None
        return target


def _in(request: FetchRequest, started: float, fault: Fault) -> Fault:
    fault.exchange = Exchange((request,), started)
    return fault


def require(kind: Kind) -> None:
    """Load what a transport is made of, before processes are forked, which then share it.

    Raises:
        ConfigError: if it is not installed, or does not work here.
    """
    _opener(kind)


def _opener(kind: Kind) -> Callable[[Options], AbstractAsyncContextManager[Transport]]:
    match kind:
        case "aiohttp":
            from ingest.upstream.aiohttp_transport import AiohttpTransport  # noqa: PLC0415  only one of the two is needed

            return AiohttpTransport.open
        case "curl":
            _require_pycurl()
            from ingest.upstream.curl_transport import CurlTransport  # noqa: PLC0415  as above, and it is an extra

            return CurlTransport.open
        case _:
            assert_never(kind)


def _require_pycurl() -> None:
    if sys.platform != "linux":
        raise ConfigError("INGEST_UPSTREAM_CLIENT=curl needs Linux: leave it at aiohttp")
    try:
        import pycurl  # noqa: F401, PLC0415  to see whether it can be imported
    except ModuleNotFoundError as error:
        needed = "INGEST_UPSTREAM_CLIENT=curl needs the extra 'curl': pip install '.[curl]' in the project's folder"
        raise ConfigError(needed) from error
    except ImportError as error:
        # It was built for another TLS library than its libcurl has, say.
        raise ConfigError(f"INGEST_UPSTREAM_CLIENT=curl: pycurl cannot be loaded: {error}") from error
