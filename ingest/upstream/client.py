"""Fetches order documents over HTTP, through one transport for the whole process.

A fetch has no side effects. If it is cancelled or the process dies, nothing has happened.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, assert_never

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import ASKED_TO_WAIT, NotSent, PermanentFault, TokenFault, TransientFault
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.pages import PageRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.masking import PLACEHOLDER
from ingest.domain.orders.clean_json import ignored
from ingest.domain.orders.order_id import quoted_ids
from ingest.telemetry.shared_metrics import Histogram
from ingest.telemetry.tracing.port import Tracing
from ingest.upstream.access.endpoint import Endpoint, media_type_of
from ingest.upstream.attempts import Attempts
from ingest.upstream.body_template import BodyTemplate
from ingest.upstream.conditions import UNCONDITIONAL, Conditions
from ingest.upstream.http.redirects import RefusedRedirect, redirect_target
from ingest.upstream.http.traced_transport import traced_opener
from ingest.upstream.http.transport import Kind, Method, UpstreamLimits
from ingest.upstream.opening import OpenTransport, open_access
from ingest.upstream.session import ApiSession, utc_now

# Pauses between the immediate tries of one attempt, in seconds.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


def _never() -> bool:
    return False


class UpstreamClient:
    """Client of the external API.

    Args:
        session: sends the requests.
        endpoint: the templates of URL and body.
        tries: immediate tries within one attempt.
        is_paused: whether the API has requested a pause. Then there are no further immediate tries.
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
        self._template = endpoint.url
        self._order_template = endpoint.order_url or endpoint.url
        self._body = None if endpoint.body is None else BodyTemplate(endpoint.body, media_type_of(endpoint))
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
        conditions: Conditions = UNCONDITIONAL,
        is_paused: Callable[[], bool] = _never,
        attempts: Attempts | None = None,
        on_replaced: Callable[[], None] = ignored,
        tracing: Tracing | None = None,
    ) -> AsyncIterator[Self]:
        """Open a client with its transport and its credential. For the arguments, see `ApiSession`. `tracing` records requests.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        opener = transport_opener(endpoint.kind)
        if tracing is not None:
            opener = traced_opener(opener, tracing, endpoint.url)
        async with open_access(endpoint, opener, limits, now) as (transport, credential):
            session = ApiSession(
                transport,
                endpoint,
                limits.body,
                seconds,
                credential=credential,
                now=now,
                conditions=conditions,
                attempts=attempts,
                on_replaced=on_replaced,
            )
            yield cls(session, endpoint, limits.tries, is_paused)

    async def authenticate(self) -> None:
        """Obtain the credential as the next request would, without sending one to the external API.

        Raises:
            TokenFault: no access token could be obtained.
            TokenRefused: the authorization server does not issue one.
        """
        await self._session.headers()

    def unanswered_for(self) -> float:
        """Return for how many seconds requests have been waiting without any response, or 0."""
        return self._session.unanswered.seconds()

    def fetch(self, request: FetchRequest) -> Coroutine[Any, Any, Fetched | Failed]:
        """Fetch the document of one order, with immediate tries after transient failures."""
        return self._with_tries(request, self._url(request.order_id), self._body_of(request), None)

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """Fetch with a single try, for probing while the API is unavailable."""
        return await self._session.send((request,), self._url(request.order_id), self._body_of(request))

    async def fetch_page(self, request: FetchRequest, page: PageRequest) -> Fetched | Failed:
        """Fetch another document of an order, at a path of the API or at a URL that it has sent.

        It fails if the URL leads to another origin, which must not receive the credential.
        """
        url = _filled(self._order_template, request.order_id)
        try:
            if page.target:
                url = redirect_target(url, 307, page.target) or ""
        except RefusedRedirect as refused:
            fault = PermanentFault(DeadReason.INVALID_ORDER, f"a page of the order {refused}")
            return Failed(fault, Exchange((request,), time.monotonic()))
        return await self._with_tries(request, url, page.body, "GET" if page.body is None else "POST")

    def _with_tries(
        self, request: FetchRequest, url: str, body: bytes | None, method: Method | None
    ) -> Coroutine[Any, Any, Fetched | Failed]:
        send = partial(self._session.send, (request,), url, body, method)
        return with_tries(send, self._tries, self._draw, self._is_paused)

    def _body_of(self, request: FetchRequest) -> bytes | None:
        return None if self._body is None else self._body.filled(request.order_id)

    def _url(self, order_id: str) -> str:
        return _filled(self._template, order_id)


async def with_tries(
    send: Callable[[], Awaitable[Fetched | Failed]],
    tries: int,
    draw: Callable[[float, float], float],
    is_paused: Callable[[], bool] = _never,
) -> Fetched | Failed:
    """Send a request, and again after failures that may pass. Return the last result. For the arguments, see `UpstreamClient`."""
    result = await send()
    for number in range(tries - 1):
        # Requests for a token have their own pauses.
        if (
            isinstance(result, Fetched)
            or not isinstance(result.fault, TransientFault)
            or isinstance(result.fault, TokenFault)
        ):
            break
        # Full jitter, so that requests that failed together are not retried together.
        await asyncio.sleep(draw(0.0, exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, number)))
        if is_paused():
            return Failed(NotSent(ASKED_TO_WAIT), result.exchange)
        result = await send()
    return result


def _filled(template: str, order_id: str) -> str:
    return template.replace(PLACEHOLDER, quoted_ids(order_id))


def require(kind: Kind, *, has_proxy: bool = False) -> None:
    """Import the modules of a transport before processes are forked, which then share their memory."""
    transport_opener(kind)
    if kind == "native" and has_proxy:
        transport_opener("aiohttp")


def transport_opener(kind: Kind) -> OpenTransport:
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
