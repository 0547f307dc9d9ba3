"""The evidence window: failed requests that wait until it is known whether their order or the external API is at fault."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ingest.domain.fetching import Exchange

# Throttled requests with more time between them do not belong together.
_THROTTLES_APART = 10.0


class EvidenceWindow:
    """Failed requests that wait to be classified.

    Attributes:
        waiting: the requests, each with how many of its orders wait.

    Args:
        many: this many failures without an answer to anything later are examined at once, fewer after a while.
        window: seconds after which.
        clock: monotonic seconds.
    """

    def __init__(self, many: int, window: float, clock: Callable[[], float]) -> None:
        self._many = many
        self._window = window
        self._clock = clock
        self.waiting: dict[Exchange, int] = {}
        self._changed = asyncio.Event()
        self._is_examining = False

    def orders(self) -> int:
        """How many orders they were sent for."""
        return len({request.order_id for exchange in self.waiting for request in exchange.requests})

    def apart(self) -> set[str]:
        """The orders for which they failed; of those that were sent for several orders, the first."""
        return {exchange.requests[0].order_id for exchange in self.waiting}

    async def until_classified(self, exchange: Exchange, examine: Callable[[], Awaitable[None]]) -> None:
        """Wait until a failure is classified; without evidence until then, let one of those that wait `examine`."""
        self.waiting[exchange] = self.waiting.get(exchange, 0) + 1
        examined_at = self._clock() + (self._window if len(self.waiting) < self._many else 0.0)
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

    def clear(self, exchanges: Iterable[Exchange] | None = None) -> None:
        """Those failures are classified; by default all."""
        for exchange in list(self.waiting if exchanges is None else exchanges):
            self.waiting.pop(exchange, None)
        self._notify()

    def clear_before(self, started_at: float) -> None:
        """A request that began then was answered: those that began no later were their orders' fault."""
        self.clear([exchange for exchange in self.waiting if exchange.started_at <= started_at])

    async def _examine(self, examine: Callable[[], Awaitable[None]]) -> None:
        self._is_examining = True
        try:
            await examine()
        finally:
            self._is_examining = False
            self._notify()

    def _leave(self, exchange: Exchange) -> None:
        """One of the exchange's orders waits no longer; it counts as long as another does."""
        waiting = self.waiting.pop(exchange, 0) - 1
        if waiting > 0:
            self.waiting[exchange] = waiting

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class ThrottleWindow:
    """Throttled requests: an API that throttles answers something else; one that throttles everything for a while is unavailable.

    Attributes:
        orders: those that were throttled since the last other answer, each with when it first was.

    Args:
        many: throttled orders that are many.
        window: seconds without another answer that are long.
    """

    def __init__(self, many: int, window: float) -> None:
        self._many = many
        self._window = window
        self.orders: dict[str, float] = {}

    def record(self, exchange: Exchange, now: float) -> bool:
        """Note a throttled request; returns whether the API is unavailable."""
        if now > next(reversed(self.orders.values()), now) + _THROTTLES_APART:
            self.orders.clear()
        first = next(iter(self.orders.values()), now)
        self.orders.setdefault(exchange.requests[0].order_id, now)
        return len(self.orders) >= self._many and now >= first + self._window
