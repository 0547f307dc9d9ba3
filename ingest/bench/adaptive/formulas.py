"""Two published limits to compare ours with, Netflix's Gradient2 and Vector's ARC, with their default settings.

Both are implemented from their formulas for virtual time. They observe the same attempts, and each counts the results
that its own rule defines.
"""

from math import sqrt

from ingest.bench.adaptive.world import End, Limit

# Gradient2Limit.java of Netflix's concurrency-limits: initial limit 20, minimum 20 (here 1, because 20 is
# "not desirable ... for batch apps"), smoothing 0.2, queue 4, long window 600. The window is a second, with the mean
# of its samples, like in WindowedLimit.java.
_INITIAL = 20
_SMOOTHING = 0.2
_QUEUE = 4
_LONG_WEIGHT = 2 / (600 + 1)
_WARM_UP = 10
_DRIFT = 2.0
_DRIFT_FACTOR = 0.9
_WINDOW = 1.0
_WINDOW_SAMPLES = 10

# Vector's AdaptiveConcurrencySettings: initial 1, decrease ratio 0.9, EWMA alpha 0.4, deviation scale 2.5.
_ARC_INITIAL = 1
_RATIO = 0.9
_ALPHA = 0.4
_DEVIATIONS = 2.5


class Gradient2(Limit):
    """Follows the gradient of a window's mean duration against the long-term average.

    Rejections are not counted and do not change this limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(_INITIAL, most))
        self._long = 0.0
        self._windows = 0
        self._in_flight = self._peak = 0
        self._reset(0.0)
        self.value = int(self._limit)

    def start(self, now: float) -> None:
        """See `Limit`."""
        del now
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)

    def end(self, started_at: float, now: float, end: End) -> None:
        """See `Limit`."""
        self._in_flight -= 1
        if end is not End.DOCUMENT:
            return
        self._sum += now - started_at
        self._count += 1
        if now >= self._until and self._count >= _WINDOW_SAMPLES:
            self._update(self._sum / self._count)
            self._reset(now)

    def _update(self, short: float) -> None:
        self._windows += 1
        if self._windows <= _WARM_UP:
            self._long += (short - self._long) / self._windows
        else:
            self._long += _LONG_WEIGHT * (short - self._long)
        if self._long / short > _DRIFT:
            self._long *= _DRIFT_FACTOR
        if self._peak < self._limit / 2:
            return
        gradient = max(0.5, min(1.0, self._long / short))
        self._limit += _SMOOTHING * (self._limit * gradient + _QUEUE - self._limit)
        self._limit = max(1.0, min(float(self._most), self._limit))
        self.value = int(self._limit)

    def _reset(self, now: float) -> None:
        self._until = now + _WINDOW
        self._sum = 0.0
        self._count = 0
        self._peak = self._in_flight


class Arc(Limit):
    """Adds one after each round trip of usual duration, and subtracts 10 % after a longer one or a rejection."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_flight = 0
        self._mean: float | None = None
        self._variance = 0.0
        self._next = 0.0
        self._reached = False
        self.value = _ARC_INITIAL
        self._reset()

    def start(self, now: float) -> None:
        """See `Limit`."""
        del now
        self._in_flight += 1
        self._reached = self._reached or self._in_flight >= self.value

    def end(self, started_at: float, now: float, end: End) -> None:
        """See `Limit`."""
        self._in_flight -= 1
        if end is End.DOCUMENT:
            self._sum += now - started_at
            self._count += 1
        else:
            self._pushed_back = True
        current = self._sum / self._count if self._count else None
        if self._mean is None:
            if current is not None:
                self._mean = current
                self._next = now + current
        elif now >= self._next:
            self._manage(self._mean, current)
            if current is not None:
                difference = current - self._mean
                self._mean += _ALPHA * difference
                self._variance = (1 - _ALPHA) * (self._variance + _ALPHA * difference**2)
            self._next = now + self._mean
            self._reset()

    def _manage(self, past: float, current: float | None) -> None:
        is_usual = current is not None and current <= past
        if self.value < self._most and self._reached and not self._pushed_back and is_usual:
            self.value += 1
        elif self._pushed_back or (current or 0.0) >= past + _DEVIATIONS * sqrt(self._variance):
            self.value = max(1, int(self.value * _RATIO))

    def _reset(self) -> None:
        self._sum = 0.0
        self._count = 0
        self._pushed_back = False
        self._reached = False
