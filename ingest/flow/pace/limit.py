"""Limits the requests in flight: to the configured number, and to fewer while the external API throttles.

Additive increase, multiplicative decrease (Chiu and Jain, 1989), with slow start (Jacobson, 1988). When the API throttles, all requests
pause (see `pauses`). Afterwards the limit begins with a few, doubles with each round of responses up to 80 % of the number that was too
much, stays there for ten times the pause, and then grows by one for each round. If a single request in flight is too much, there is a
pause between requests as well.

After an outage the limit begins with a few in the same way, because a server that has just started cannot serve everyone immediately.

With `adaptive_limit`, the lower of the two limits applies.
"""

import time
from asyncio import Event
from collections.abc import Callable

from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pauses import WORK_PER_PAUSE, Pauses
from ingest.telemetry.shared_metrics import Gauge

_CUT = 0.8
# With fewer, one order that hangs would block all others.
_A_FEW = 4.0
# At this multiple of the number that was too much, the earlier experience no longer applies.
_FAR_ABOVE = 1.25


class ConcurrencyLimit:
    """The limit of one process.

    Attributes:
        value: requests that may be in flight now.

    Args:
        most: the configured limit.
        gauge: shows the limit.
        pauses: the pauses between requests.
        changed: set when the limit has grown.
        adaptive: the limit by the API's capacity, if it is in use.
        clock: monotonic seconds, as in `record_throttle`.
    """

    def __init__(
        self,
        most: int,
        gauge: Gauge,
        pauses: Pauses,
        changed: Event,
        adaptive: AdaptiveLimit | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._exact = float(most)
        self._adaptive = adaptive
        self._gauge = gauge
        self._pauses = pauses
        self._changed = changed
        self._clock = clock
        self._too_much = self._doubles_until = float("inf")
        self._cut_at = self._stays_until = 0.0
        self.value = self._allowed()
        gauge.set(self.value)

    def record_success(self) -> None:
        """The API has responded without throttling."""
        pauses = self._pauses
        if pauses.is_on:
            pauses.record_success()
        if self._exact < self._most and not pauses.interval:
            if self._exact > _FAR_ABOVE * self._too_much + 1:
                self._forget()
            if self._exact < self._doubles_until:
                self._set(min(self._exact + 1.0, float(self._most), max(1.0, self._doubles_until)))
            elif self._clock() >= self._stays_until:
                self._set(min(self._exact + 1.0 / self._exact, float(self._most)))
        if self._adaptive is not None:
            self._refresh()

    def record_throttle(self, retry_after: float | None, started_at: float) -> float:
        """The API has throttled a request.

        Args:
            retry_after: the seconds that the API asks for, if it does.
            started_at: when the request began.

        Returns:
            Seconds for which the order should wait.
        """
        # Requests that were in flight at the last cut do not count again.
        is_news = started_at >= self._cut_at
        if is_news:
            self._pauses.count_throttle()
        wait = self._pauses.record_throttle(retry_after)
        if is_news:
            self._cut()
        return wait

    def restart(self) -> None:
        """An outage has ended. Begin with a few requests, and forget the number that was too much before."""
        self._pauses.resume()
        self._forget()
        if self._adaptive is not None:
            self._adaptive.restart()
        self._set(min(_A_FEW, float(self._most)))

    def _forget(self) -> None:
        self._too_much = self._doubles_until = float("inf")

    def _cut(self) -> None:
        self._cut_at = self._clock()
        self._stays_until = self._cut_at + (WORK_PER_PAUSE + 1) * self._pauses.pause
        if self.value == 1:
            self._pauses.slow_down()
        # The limit may exceed the API's capacity, which was in flight.
        self._too_much = min(self._exact, float(self._capacity()))
        self._doubles_until = max(1.0, self._too_much * _CUT)
        self._set(min(_A_FEW, self._doubles_until))

    def _set(self, exact: float) -> None:
        self._exact = exact
        self._refresh()

    def _refresh(self) -> None:
        before, self.value = self.value, self._allowed()
        if self.value != before:
            self._gauge.set(self.value)
        if self.value > before:
            self._changed.set()

    def _allowed(self) -> int:
        return min(int(self._exact), self._capacity())

    def _capacity(self) -> int:
        """The API's capacity, as far as it is known."""
        return self._most if self._adaptive is None else self._adaptive.value
