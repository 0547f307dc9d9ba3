"""How many orders may be in flight: as many as set, less while the external API throttles.

Additive increase, multiplicative decrease (Chiu and Jain, 1989), with slow start (Jacobson, 1988). When the API says that it is too
much, all requests pause (see `pauses`). Afterwards the limit begins with a few, doubles with each round of answers up to four fifths of
what was too much, stays there for ten times the pause, and then grows by one for each round. If a single order at a time is too much,
there is a pause between requests as well.

After an outage it begins with a few in the same way: what comes back up does not bear everybody at once.

Where `adaptive_limit` is in use, the lower of the two limits holds.
"""

import time
from asyncio import Event
from collections.abc import Callable

from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pauses import WORK_PER_PAUSE, Pauses
from ingest.telemetry.shared_metrics import Gauge

_CUT = 0.8
# With fewer, one order that hangs would hold up all others.
_A_FEW = 4.0
# So far above what was too much once, that says nothing any more.
_FAR_ABOVE = 1.25


class ConcurrencyLimit:
    """The limit of one process.

    Attributes:
        value: orders that may be in flight now.

    Args:
        most: orders, as set.
        gauge: shows the limit.
        pauses: the pauses between requests.
        changed: set when the limit has grown.
        adaptive: the limit that the API's own capacity sets, if that is looked for.
        clock: monotonic seconds, those of `record_throttle`.
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
        """A response that was not "too much"."""
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

    def record_throttle(self, told: float | None, asked_at: float) -> float:
        """The API said that it was too much.

        Args:
            told: seconds for which it asks to wait, if it does.
            asked_at: when the request began.

        Returns:
            Seconds for which the order should wait.
        """
        # What was in flight at the last cut says nothing of it.
        is_news = asked_at >= self._cut_at
        if is_news:
            self._pauses.count_throttle()
        wait = self._pauses.record_throttle(told)
        if is_news:
            self._cut()
        return wait

    def restart(self) -> None:
        """An outage is over: begin with a few. What was too much for the API before says nothing about now."""
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
        # More may be allowed than the API's capacity, which was in flight.
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
        """The API's own capacity, as far as it is known."""
        return self._most if self._adaptive is None else self._adaptive.value
