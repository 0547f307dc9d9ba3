"""How many requests may be in flight, and when the next one may begin: the concurrency limit, the pauses and the quota.

The limit is the configured number, or less while the external API throttles: additive increase, multiplicative decrease (Chiu and Jain,
1989), with slow start (Jacobson, 1988). When the API throttles, all requests pause (see `pauses`). Afterwards the limit begins with a few,
doubles with each round of responses up to 80 % of the number that was too much, stays there for ten times the pause, and then grows by one
for each round. If a single request in flight is too much, there is a pause between requests as well.

After an outage the limit begins with a few in the same way, because a server that has just started cannot serve everyone immediately.

With `adaptive_limit`, the lower of the two limits applies. If the process dies, its successor finds the limit and the pauses again.
"""

import time
from asyncio import Event
from collections.abc import Callable
from typing import Protocol

from ingest.domain.errors import ASKED_TO_WAIT
from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pauses import WORK_PER_PAUSE, Pauses
from ingest.telemetry.shared_metrics import Gauge

_CUT = 0.8
# With fewer, one order that hangs would block all others.
_A_FEW = 4.0
# At this multiple of the number that was too much, the earlier experience no longer applies.
_FAR_ABOVE = 1.25


class Quota(Protocol):
    """The quota that the fleet shares: `ingest.upstream.quota.quota`."""

    def read_ahead(self) -> int:
        """How many requests this process may soon send."""

    def turn_away(self, reason: str = ASKED_TO_WAIT) -> None:
        """Send none of the requests that wait."""


class Pace:
    """The pace of one process.

    Attributes:
        requests: requests that may be in flight now.
        pauses: the pauses that the API asks for.
        changed: set when more requests may be in flight.
        per_request: orders in one request, at most.

    Args:
        most: the configured limit.
        gauge: shows the limit.
        quota: shared with other processes, if one is set.
        adaptive: the limit by the API's own capacity, if it is in use.
        clock: monotonic seconds, as in `record_throttle`.
    """

    def __init__(
        self,
        most: int,
        gauge: Gauge,
        pauses: Pauses,
        quota: Quota | None = None,
        adaptive: AdaptiveLimit | None = None,
        *,
        per_request: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pauses = pauses
        self.changed = Event()
        self.per_request = per_request
        self._most = most
        self._gauge = gauge
        self._quota = quota
        self._adaptive = adaptive
        self._clock = clock
        self._exact = float(most)
        self._too_much = self._doubles_until = float("inf")
        self._cut_at = self._stays_until = 0.0
        self.requests = self._allowed()
        gauge.set(self.requests)

    # -- orders ---------------------------------------------------------------------------------------------

    def orders(self) -> int:
        """How many orders may be in flight."""
        requests = self.requests if self._quota is None else min(self.requests, self._quota.read_ahead())
        return self.per_request * requests

    def delay(self) -> float:
        """Seconds until the next order may begin, 0 or less for now.

        Orders that share requests wait only for the pauses between all requests.
        """
        return self.pauses.delay() if self.per_request == 1 else self.pauses.left()

    def record_order(self) -> None:
        """An order begins."""
        if self.per_request == 1:
            self.pauses.record_start()

    # -- requests for several orders ------------------------------------------------------------------------

    def request_delay(self) -> float:
        """Seconds until the next request for several orders may begin, 0 or less for now."""
        return self.pauses.delay()

    def record_request(self) -> None:
        """A request for several orders begins."""
        self.pauses.record_start()

    def turn_away(self, reason: str) -> None:
        """Send none of the requests that wait for the quota, because the source is paused."""
        if self._quota is not None:
            self._quota.turn_away(reason)

    # -- responses ------------------------------------------------------------------------------------------

    def is_paused(self) -> bool:
        """Whether the API has asked to wait."""
        return self.pauses.left() > 0

    def record_success(self) -> None:
        """The API has responded without throttling."""
        if self.pauses.is_on:
            self.pauses.record_success()
        if self._exact < self._most and not self.pauses.interval:
            if self._exact > _FAR_ABOVE * self._too_much + 1:
                self._forget()
            if self._exact < self._doubles_until:
                self._set(min(self._exact + 1.0, float(self._most), max(1.0, self._doubles_until)))
            elif self._clock() >= self._stays_until:
                self._set(min(self._exact + 1.0 / self._exact, float(self._most)))
        if self._adaptive is not None:
            self._refresh()

    def record_throttle(self, retry_after: float | None, started_at: float, error: str = ASKED_TO_WAIT) -> float:
        """The API has throttled a request that began at `started_at`. Return the seconds for which its order should wait."""
        # Requests that were in flight at the last cut do not count again.
        is_news = started_at >= self._cut_at
        if is_news:
            self.pauses.count_throttle()
        wait = self.pauses.record_throttle(retry_after, error)
        if is_news:
            self._cut()
        if self._quota is not None:
            self._quota.turn_away()
        return wait

    def restart(self) -> None:
        """An outage has ended. Begin with a few requests, and forget the number that was too much before."""
        self.pauses.resume()
        self._forget()
        if self._adaptive is not None:
            self._adaptive.restart()
        self._set(min(_A_FEW, float(self._most)))

    # -- the limit ------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._too_much = self._doubles_until = float("inf")

    def _cut(self) -> None:
        self._cut_at = self._clock()
        self._stays_until = self._cut_at + (WORK_PER_PAUSE + 1) * self.pauses.pause
        if self.requests == 1:
            self.pauses.slow_down()
        # The limit may exceed the API's capacity, which was in flight.
        self._too_much = min(self._exact, float(self._capacity()))
        self._doubles_until = max(1.0, self._too_much * _CUT)
        self._set(min(_A_FEW, self._doubles_until))

    def _set(self, exact: float) -> None:
        self._exact = exact
        self._refresh()

    def _refresh(self) -> None:
        before, self.requests = self.requests, self._allowed()
        if self.requests != before:
            self._gauge.set(self.requests)
        if self.requests > before:
            self.changed.set()

    def _allowed(self) -> int:
        return min(int(self._exact), self._capacity())

    def _capacity(self) -> int:
        """The API's capacity, as far as it is known."""
        return self._most if self._adaptive is None else self._adaptive.value
