"""Fetches order documents over HTTP, through one transport for the whole process.

A fetch has no side effects: if it is cancelled or the process dies, nothing has happened.
"""

import random
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Self, assert_never
from urllib.parse import quote

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import ASKED_TO_WAIT, NotSent, PermanentFault, TokenFault, TransientFault
from ingest.domain.fetch.exchange import Fetched, FetchRequest
from ingest.domain.orders.clean_json import ignored
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.attempts import Attempts
from ingest.upstream.http.redirects import RefusedRedirect, redirect_target
from ingest.upstream.http.replacement import Opener, ReplaceableTransport
from ingest.upstream.http.transport import Kind, Method, Options, Transport, UpstreamLimits
from ingest.upstream.opening import opened_session
from ingest.upstream.quota.quota import FleetQuota
from ingest.upstream.session import Again, ApiSession, Requests, raised, utc_now

# Pauses between the immediate tries of one attempt, in seconds.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_PLACEHOLDER = "{order_id}"
# What stands in a URL for itself (RFC 3986, section 2.3).
_UNRESERVED = re.compile("[A-Za-z0-9._~-]*")


def _never() -> bool:
    return False


class UpstreamClient:
    """Client of the external API.

    Args:
        session: sends the requests.
        endpoint: the templates of URL and body.
        tries: immediate tries within one attempt.
        is_paused: whether the API has asked to wait; then there are no further immediate tries.
        draw: returns a uniform random number between its arguments, for the pauses between immediate tries.
    """

    def __init__(
        self,
        session: ApiSession,
        endpoint: Endpoint,
        tries: int,
        is_paused: Callable[[], bool] = _never,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._session = session
        before, placeholder, after = endpoint.url.partition(_PLACEHOLDER)
        self._before, self._after = before, after
        self._in_url = bool(placeholder)
        self._body = endpoint.body
        self._tries = tries
        self._draw = draw
        self._is_paused = is_paused

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        endpoint: Endpoint,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = utc_now,
        *,
        quota: FleetQuota | None = None,
        is_paused: Callable[[], bool] = _never,
        attempts: Attempts | None = None,
        on_replaced: Callable[[], None] = ignored,
    ) -> AsyncIterator[Self]:
        """Open a client with its transport and its credential.

        Args:
            endpoint: the external API.
            limits: of a request and its response.
            seconds: request duration histograms by code.
            now: the clock for the time of a fetch.
            quota: each request waits for it, whatever its purpose; None: unlimited.
            is_paused: see the class.
            attempts: learns of each request.
            on_replaced: called for each document in which characters were replaced.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        opener = transport_opener(endpoint.kind)
        async with opened_session(endpoint, opener, limits, seconds, now, quota, attempts, on_replaced) as session:
            yield cls(session, endpoint, limits.tries, is_paused)

    @classmethod
    @asynccontextmanager
    async def with_opener(
        cls,
        opener: Opener,
        template: str,
        limits: UpstreamLimits,
        seconds: dict[str, Histogram],
        now: Callable[[], datetime] = utc_now,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[Self]:
        """Open a client without a credential on the transports that `opener` opens: one, and a replacement when it has failed.

        `clock` (monotonic seconds) determines how long a transport has been open.
        """
        async with ReplaceableTransport.open(opener, limits.total, clock) as transport:
            endpoint = Endpoint(template)
            yield cls(ApiSession(transport, endpoint, limits.body, seconds, now=now), endpoint, limits.tries, draw=draw)

    async def authenticate(self) -> None:
        """Obtain the credential as the next request would, without sending one to the external API.

        Raises:
            TokenFault: no access token could be obtained.
            TokenRefused: the authorization server refuses to issue one.
        """
        await self._session.authenticate()

    def fetch(self, request: FetchRequest) -> Coroutine[Any, Any, Fetched]:
        """Return the document of one order, as sent, with the start time of the successful try.

        Raises:
            TransientFault: all immediate tries have failed.
            TransportFault: our own HTTP client has failed in all of them.
            TokenFault: no access token could be obtained.
            ThrottledFault: the API asks to wait.
            CredentialFault: the API refuses our credential.
            PostponedFault: the API has answered that the order is not ready.
            PermanentFault: the API has no such order, refuses it, or its document is too large.
            NotSent: the process stops, or the API asks to wait.
        """
        return self._send(request, self._try_again)

    def fetch_once(self, request: FetchRequest) -> Coroutine[Any, Any, Fetched]:
        """Fetch with a single try: for probing while the API is unavailable."""
        return self._send(request)

    async def fetch_at(self, request: FetchRequest, target: str) -> Fetched:
        """Fetch something else of an order: at a path of the API, or at a URL that it has sent.

        Raises:
            Fault: as `fetch`; also if the URL leads to another origin, where no credential may go.
        """
        try:
            url = redirect_target(self._url(request.order_id), 307, target) or ""
        except RefusedRedirect as refused:
            raise PermanentFault(DeadReason.INVALID_ORDER, f"a page of the order {refused}") from None
        return await self._session.send((request,), url, method="GET", again=self._try_again)

    def _send(self, request: FetchRequest, again: Again = raised) -> Coroutine[Any, Any, Fetched]:
        # Not a coroutine of its own, as each one costs every order time.
        order_id, body = request.order_id, self._body
        sent = None if body is None else body.replace(_PLACEHOLDER, order_id).encode()
        return self._session.send((request,), self._url(order_id), sent, again=again)

    def _url(self, order_id: str) -> str:
        if not self._in_url:
            return self._before  # the ID is in the body
        # Most IDs need no quoting, and the check costs a third of it. Those of a bulk request are separated by commas.
        quoted = order_id if _UNRESERVED.fullmatch(order_id) else quote(order_id, safe=",")
        return self._before + quoted + self._after

    async def _try_again(
        self, first: TransientFault, requests: Requests, url: str, body: bytes | None, method: Method | None
    ) -> Fetched:
        """Retry after a failed first try. The first try runs without tenacity, which would double the cost of a success."""
        if isinstance(first, TokenFault):
            raise first  # requests for a token have pauses of their own
        failed: TransientFault | None = first

        async def next_try() -> Fetched:
            nonlocal failed
            if failed is not None:
                error, failed = failed, None
                raise error
            if self._is_paused():
                raise NotSent(ASKED_TO_WAIT)
            return await self._session.send(requests, url, body, method)

        # Full jitter: requests that failed together are not retried together.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientFault),
            stop=stop_after_attempt(self._tries),
            wait=lambda state: self._draw(
                0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(state.attempt_number - 1, 10))
            ),
            reraise=True,
        )
        return await retrying(next_try)


def require(kind: Kind, *, has_proxy: bool = False) -> None:
    """Import what a transport needs before processes are forked, which then share its memory."""
    transport_opener(kind)
    if kind == "native" and has_proxy:
        transport_opener("aiohttp")


def transport_opener(kind: Kind) -> Callable[[Options], AbstractAsyncContextManager[Transport]]:
    """Return the function that opens a transport of this kind."""
    match kind:
        case "aiohttp":
            from ingest.upstream.http.aiohttp import AiohttpTransport  # noqa: PLC0415  only one of them is needed

            return AiohttpTransport.open
        case "native":
            from ingest.upstream.http import native  # noqa: PLC0415  as above

            return native.opened
        case _:
            assert_never(kind)
