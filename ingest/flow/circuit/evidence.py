"""The evidence window, in which failed requests wait until their order or the external API is found to be at fault."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from ingest.domain.fetch.exchange import Exchange

# Seconds between throttled requests after which they do not belong together.
_THROTTLED_GAP = 10.0


class _Failure(msgspec.Struct):
    """A failed request.

    Attributes:
        since: only a success that began at this time or later is evidence.
        orders: how many of its orders wait.
    """

    since: float
    orders: int = 0


class EvidenceWindow:
    """Failed requests that wait to be classified.

    Attributes:
        waiting: the requests.

    Args:
        many: this many failures are examined immediately, fewer after a while.
    """

    def __init__(self, many: int, clock: Callable[[], float]) -> None:
        self._many = many
        self._clock = clock
        self.waiting: dict[Exchange, _Failure] = {}
        self._changed = asyncio.Event()
        self._is_examining = False

    def orders(self) -> set[str]:
        """The orders of all waiting requests."""
        return {request.order_id for exchange in self.waiting for request in exchange.requests}

    def first_orders(self) -> set[str]:
        """One order of each waiting request."""
        return {exchange.requests[0].order_id for exchange in self.waiting}

    async def until_classified(
        self, exchange: Exchange, since: float, window: float, examine: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait until a failure is classified. After `window` seconds without evidence, one of the waiting calls examines the failures.

        Args:
            exchange: the failed request.
            since: only a success that began at this time or later is evidence.
            window: seconds.
            examine: searches for evidence.
        """
        self.waiting.setdefault(exchange, _Failure(since)).orders += 1
        examined_at = self._clock() + (window if len(self.waiting) < self._many else 0.0)
        try:
            while exchange in self.waiting:
                left = examined_at - self._clock()
                if left <= 0 and not self._is_examining:
                    await self._examine(examine)
                    continue
                changed = self._changed
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if left > 0 else None):
                        await changed.wait()
        finally:
            self._leave(exchange)

    def clear(self) -> None:
        """All failures are classified."""
        self.waiting.clear()
        self._notify()

    def clear_before(self, started_at: float) -> None:
        """A request that began at `started_at` has succeeded, which is evidence for all earlier failures."""
        self.waiting = {exchange: each for exchange, each in self.waiting.items() if each.since > started_at}
        self._notify()

    async def _examine(self, examine: Callable[[], Awaitable[None]]) -> None:
        self._is_examining = True
        try:
            await examine()
        finally:
            self._is_examining = False
            self._notify()

    def _leave(self, exchange: Exchange) -> None:
        """An order of the request stops waiting. The request stays while another of its orders waits."""
        failure = self.waiting.get(exchange)
        if failure is None:
            return
        failure.orders -= 1
        if not failure.orders:
            del self.waiting[exchange]

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class ThrottleWindow:
    """Throttled requests. An API that throttles every request for a while is unavailable.

    Attributes:
        orders: the orders throttled since the last other response, each with the time of its first rejection.

    Args:
        many: the number of throttled orders that is an outage,
        window: after this many seconds without another response.
    """

    def __init__(self, many: int, window: float) -> None:
        self._many = many
        self._window = window
        self.orders: dict[str, float] = {}

    def record(self, exchange: Exchange, now: float) -> bool:
        """Note a throttled request, and return whether the API is unavailable."""
        if now > next(reversed(self.orders.values()), now) + _THROTTLED_GAP:
            self.orders.clear()
        first = next(iter(self.orders.values()), now)
        self.orders.setdefault(exchange.requests[0].order_id, now)
        return len(self.orders) >= self._many and now >= first + self._window
