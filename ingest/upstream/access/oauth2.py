"""A credential that expires: an OAuth 2.0 access token, requested when it is needed and renewed before it expires.

All orders of a process share one request for a token. In the last part of a token's life, the next order starts a request for another
one, and no order waits for it. If the API rejects a token, another one is requested, and the rejected order waits. Other orders use the
token until then, because the API may reject only that order. While the authorization server is unavailable, orders without a token fail
with `TokenFault`, which uses up no attempt, and requests for a token are paused.

A token for client credentials is in memory, and a process that restarts requests a new one. For a refresh token, see `shared_token`.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from ingest.domain.errors import Fault, TokenFault
from ingest.domain.exponential_pause import exponential_pause
from ingest.telemetry.logs import get_logger
from ingest.upstream.access.endpoint import token_in
from ingest.upstream.access.token_request import NoToken, Token

_log = get_logger("upstream")

# A token is renewed in this last share of its life, and at most these seconds before its end. Half of that is jitter, so that processes
# that started together do not renew together.
_RENEW_SHARE = 0.4
_RENEW_SECONDS = 120.0
# A token is not used in this last share of its life, at most these seconds, because it would expire on the way.
_UNUSED_SHARE = 0.05
_UNUSED_SECONDS = 5.0
# A token that is rejected at an age of fewer seconds is not replaced, because the next one would be rejected as well. A rejection not
# much later doubles the seconds: an API may reject some orders with any token.
_YOUNG = 1.0
_LONGEST_YOUNG = 30.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0
_LONGEST_RETRY_AFTER = 60.0
_RETRY_LATER = 1.25


class OAuth2Credential:
    """The headers of requests, with an access token.

    Args:
        request: requests a token, or raises `NoToken`.
        fixed: returns the other headers.
        header: the name of the header for the token.
        finish: seconds that `close` waits for a pending request. Its response may contain the only valid refresh token.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[Token]],
        fixed: Callable[[], Mapping[str, str]],
        header: str = "Authorization",
        *,
        finish: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._request = request
        self._fixed = fixed
        self._header = header
        self._finish = finish
        self._clock = clock
        self._draw = draw
        self._token: Token | None = None
        self._with_token: Mapping[str, str] | None = None
        self._requested_at = self._renews_at = self._expires_at = 0.0
        self._young = _YOUNG
        self._requesting: asyncio.Task[None] | None = None
        self._paused_until = 0.0
        self._failures = 0
        self._failure: NoToken | None = None

    async def close(self) -> None:
        """Cancel a pending request for a token, or wait for its response if it must not be lost."""
        if (requesting := self._requesting) is None:
            return
        try:
            if self._finish:
                await asyncio.wait({requesting}, timeout=self._finish)
        finally:
            requesting.cancel()
            with suppress(asyncio.CancelledError):
                await requesting

    @property
    def headers(self) -> Mapping[str, str] | None:
        """See `Credential`. None if a token has to be requested, or renewed soon."""
        return self._with_token if self._clock() < self._renews_at else None

    async def obtain(self) -> Mapping[str, str]:
        """See `Credential`."""
        if self.headers is None:
            self._start()
        if (usable := self._usable()) is not None:
            return usable
        await self._response()
        if (usable := self._usable()) is not None:
            return usable
        raise self._fault()

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """See `Credential`."""
        if self._with_token is not refused:
            return await self.obtain() is not refused
        if self._requesting is None:
            age = self._clock() - self._requested_at
            if age < self._young:
                return False
            if self._start():
                is_soon = age < 2 * self._young
                self._young = min(2 * self._young, _LONGEST_YOUNG) if is_soon else max(self._young / 2, _YOUNG)
        await self._response()
        if self._with_token is refused:
            raise self._fault()
        return True

    def update(self) -> None:
        """The other headers have changed."""
        if self._token is not None:
            self._with_token = {**self._fixed(), **token_in(self._header, self._token.value)}

    def _usable(self) -> Mapping[str, str] | None:
        return self._with_token if self._clock() < self._expires_at else None

    async def _response(self) -> None:
        """Wait for the request for a token, if there is one. Cancelling one order does not cancel it, because others wait for it."""
        if self._requesting is not None:
            await asyncio.shield(self._requesting)

    def _fault(self) -> Fault:
        return (
            self._failure.fault() if self._failure is not None else TokenFault("no token from the authorization server")
        )

    def _start(self) -> bool:
        """Request a token, unless a request is running or the last one has just failed. Return whether one has begun."""
        if self._requesting is not None or self._clock() < self._paused_until:
            return False
        self._requesting = asyncio.create_task(self._replace())
        return True

    async def _replace(self) -> None:
        requested_at = self._clock()
        try:
            token = await self._request()
        except NoToken as error:
            self._fail(error)
        else:
            self._use(token, requested_at)
        finally:
            self._requesting = None

    def _use(self, token: Token, requested_at: float) -> None:
        if self._failures:
            _log.info("token_available", failures=self._failures)
        self._failures, self._failure, self._paused_until = 0, None, 0.0
        self._token, self._requested_at = token, requested_at - token.age
        self.update()
        if token.lifetime is None:
            self._renews_at = self._expires_at = math.inf
            return
        used = token.lifetime - min(token.lifetime * _UNUSED_SHARE, _UNUSED_SECONDS)
        # Counted from the request: the server has issued it since. If that took longer than the token lasts, from the response:
        # Otherwise it would never be used, and the API decides whether it has expired.
        now = self._clock()
        since = requested_at if now < requested_at + used else now
        self._expires_at = since + used
        margin = min(token.lifetime * _RENEW_SHARE, _RENEW_SECONDS) * self._draw(0.5, 1.0)
        self._renews_at = since + token.lifetime - margin

    def _fail(self, error: NoToken) -> None:
        pause = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, self._failures) * self._draw(0.5, 1.0)
        # As long as the server requests, with jitter, because it may have sent the same time to all processes.
        retry_after = min(error.after or 0.0, _LONGEST_RETRY_AFTER) * self._draw(1.0, _RETRY_LATER)
        self._paused_until = self._clock() + retry_after + pause
        if not self._failures:
            _log.warning("token_unavailable", error=str(error))
        self._failures += 1
        self._failure = error
