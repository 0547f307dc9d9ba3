"""Fetches order documents over HTTP, through one transport for the whole process.

Redirects are followed here, for both transports alike, and within the same origin only.

A fetch has no side effects: if it is cancelled or the process dies, nothing has happened.
"""

import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Self, assert_never
from urllib.parse import quote

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from ingest.domain.delivery import DeadReason, RetryReason
from ingest.domain.errors import ConfigError, Fault, PermanentFault, TransientFault, TransportFault
from ingest.domain.fetching import Exchange, Fetched, FetchRequest
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.redirects import MAX_REDIRECTS, RefusedRedirect, redirect_target
from ingest.upstream.replacement import Opener, ReplaceableTransport
from ingest.upstream.responses import code_of, fault_of, is_truncated
from ingest.upstream.transport import Kind, NoDocument, NoResponse, Options, TooLarge, Transport, UpstreamLimits

# Pauses between the immediate tries of one attempt, in seconds.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# Sent with every request.
HEADERS: Mapping[str, str] = {"Accept": "application/json", "User-Agent": "order-ingest"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class UpstreamClient:
    """Client of the external API.

    Args:
        template: URL with `{order_id}`.
        seconds: request duration histograms by code.
        headers: sent with each request.
        now: the clock for the time of a fetch; the same for all workers, as the later fetch wins.
        draw: returns a uniform random number between its arguments, for the pauses between immediate tries.
    """

    def __init__(
        self,
        transport: ReplaceableTransport,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
        draw: Callable[[float, float], float] = random.uniform,
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        self._transport = transport
        self._before, self._after = template.split("{order_id}")
        self._limits = limits
        self._seconds = seconds
        self._now = now
        self._draw = draw
        self._headers = headers

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
        """Open a client with its transport; `proxy` is the URL of a proxy for all requests."""
        headers = HEADERS if token is None else {**HEADERS, "Authorization": f"Bearer {token}"}
        options = Options(limits, template.lower().startswith("https://"), proxy)
        opener = transport_opener(kind)
        async with cls.with_opener(lambda: opener(options), template, limits, seconds, now, headers=headers) as client:
            yield client

    @classmethod
    @asynccontextmanager
    async def with_opener(
        cls,
        opener: Opener,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = _utc_now,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
        headers: Mapping[str, str] = HEADERS,
    ) -> AsyncIterator[Self]:
        """Open a client on the transports that `opener` opens: one, and a replacement when it has failed.

        `clock` (monotonic seconds) determines how long a transport has been open.
        """
        async with ReplaceableTransport.open(opener, limits.total, clock) as transport:
            yield cls(transport, template, limits, seconds, now, draw, headers)

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return the document of one order, as sent, with the start time of the successful try.

        Raises:
            TransientFault: all immediate tries have failed.
            TransportFault: our own HTTP client has failed in all of them.
            ThrottledFault: the API asks to wait.
            CredentialFault: the API refuses our credential.
            PermanentFault: the API has no such order, refuses it, or its document is too large.
        """
        url = self._url(request.order_id)
        try:
            return await self._try(request, url)
        except TransientFault as error:
            return await self._try_again(request, url, error)

    async def fetch_once(self, request: FetchRequest) -> Fetched:
        """Fetch with a single try: for probing while the API is unavailable."""
        return await self._try(request, self._url(request.order_id))

    def _url(self, order_id: str) -> str:
        # Most IDs need no quoting, and the check costs a tenth of it.
        plain = order_id.isalnum() and order_id.isascii()
        return self._before + (order_id if plain else quote(order_id, safe="")) + self._after

    async def _try_again(self, request: FetchRequest, url: str, first: TransientFault) -> Fetched:
        """Retry after a failed first try. The first try runs without tenacity, which would double the cost of a success."""
        failed: TransientFault | None = first

        async def next_try() -> Fetched:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            return await self._try(request, url)

        # Full jitter: requests that failed together are not retried together.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientFault),
            stop=stop_after_attempt(self._limits.tries),
            wait=lambda state: self._draw(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (state.attempt_number - 1))),
            reraise=True,
        )
        return await retrying(next_try)

    async def _try(self, request: FetchRequest, url: str, redirects: int = MAX_REDIRECTS) -> Fetched:
        code, asked_at, started, send = "error", self._now(), time.monotonic(), self._transport.send
        try:
            body = await send(url, self._headers)
            if body[-1:] == b"}" or not is_truncated(body):
                code = "2xx"
                return Fetched(body, asked_at)
        except NoDocument as response:
            code = code_of(response.status)
            target = self._target(request, url, response, redirects, asked_at, started)
        except TooLarge:
            code = "2xx"
            error = f"the body is larger than {self._limits.body} bytes"
            raise _in(request, started, PermanentFault(DeadReason.INVALID_ORDER, error)) from None
        except NoResponse as reason:
            code = "timeout" if reason.timed_out else "error"
            text = str(reason) if not reason.timed_out else f"no response in time ({reason})"
            retry = RetryReason.TIMEOUT if reason.timed_out else RetryReason.CONNECTION
            raise _in(request, started, TransientFault(text, reached=reason.reached, reason=retry)) from reason
        except Exception as bug:  # a bug in the transport is neither the order's fault nor that of the external API
            await self._transport.replace(send, bug)
            raise _in(request, started, TransportFault(f"our HTTP client failed: {type(bug).__name__}")) from bug
        else:
            raise _in(
                request,
                started,
                TransientFault(f"the document is truncated after {len(body)} bytes", reason=RetryReason.TRUNCATED),
            )
        finally:
            self._seconds[code].observe(time.monotonic() - started)
        return await self._try(request, target, redirects - 1)

    def _target(
        self, request: FetchRequest, url: str, response: NoDocument, redirects: int, asked_at: datetime, started: float
    ) -> str:
        """Return the target of a redirect, or raise the fault of any other response without a document."""
        try:
            target = redirect_target(url, response.status, response.headers.get("Location"))
        except RefusedRedirect as refused:
            raise _in(
                request, started, TransientFault(f"HTTP {response.status}: redirect refused: it {refused}")
            ) from None
        if target is None:
            raise _in(request, started, fault_of(response.status, response.headers, asked_at)) from None
        if not redirects:
            raise _in(request, started, TransientFault(f"more than {MAX_REDIRECTS} redirects")) from None
        return target


def _in(request: FetchRequest, started: float, fault: Fault) -> Fault:
    fault.exchange = Exchange((request,), started)
    return fault


def require(kind: Kind) -> None:
    """Import a transport before processes are forked, which then share its memory.

    Raises:
        ConfigError: it is not installed, or does not work on this system.
    """
    transport_opener(kind)


def transport_opener(kind: Kind) -> Callable[[Options], AbstractAsyncContextManager[Transport]]:
    """Return the function that opens a transport of this kind.

    Raises:
        ConfigError: as `require`.
    """
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
        import pycurl  # noqa: F401, PLC0415  checks whether it can be imported
    except ModuleNotFoundError as error:
        needed = "INGEST_UPSTREAM_CLIENT=curl needs the extra 'curl': pip install '.[curl]' in the project's folder"
        raise ConfigError(needed) from error
    except ImportError as error:
        # For example, it was built for another TLS library than its libcurl uses.
        raise ConfigError(f"INGEST_UPSTREAM_CLIENT=curl: pycurl cannot be loaded: {error}") from error
