"""Evaluates windows of attempts: the response time without a queue, the trend, and experiments. Pure arithmetic."""

from collections import deque
from math import log
from statistics import correlation, fmean, median, pstdev

import msgspec

from ingest.flow.pace.attempt_window import Measured

# As in failsafe-go: the median of 5 windows removes outliers, an average over as many removes noise (`smoothedSamples`), and
# the baseline is an average over 10 windows (`WithBaselineWindow(10)`). The weight of a new value is 2 / (age + 1).
_SMOOTHED = 5
_SMOOTHING = 2 / (5 + 1)
_WEIGHT = 2 / (10 + 1)
# While the limit is reached, a higher value counts with this share of its weight, and only without a queue: baselines drift.
_UPWARDS = 0.5
# After a probe, a smaller difference is averaged. A larger one means that the latency has changed.
_NEAR = 0.25
# failsafe-go keeps 50 windows and asks for 10 (`correlationWindow`, `warmupSamples`). Twenty forget an earlier capacity sooner.
_WINDOWS = 20
_AT_LEAST = 10
# Relative deviation of the requests in flight below which the rest is noise.
_VARIATION = 0.03
# failsafe-go's thresholds of an overload: durations rise with the requests in flight, and throughput does not.
_NO_GAIN = 0.3
_SLOWER = 0.5
# An experiment is conclusive once it has changed the requests in flight by this factor.
_ENOUGH = 0.9
# The change of the duration relative to the change of the requests in flight: 1 with a queue, 0 without one.
_HALF = 0.5


class LatencyBaseline:
    """The response time without a queue, and the length of the queue when responses take longer.

    Attributes:
        seconds: p90 of an attempt without a queue, or 0 before the first window.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._windows: deque[float] = deque(maxlen=_SMOOTHED)
        self._smoothed = 0.0
        self._latest = 0.0

    def observe(self, measured: Measured, few: float) -> float:
        """Add a window, and return its p90 without noise. A queue of `few` requests does not count as one."""
        previous, self._latest = self._latest or measured.p90, measured.p90
        self._windows.append(measured.p90)
        middle = median(self._windows)
        smoothed = self._smoothed + _SMOOTHING * (middle - self._smoothed) if self._smoothed else middle
        self._smoothed = smoothed
        # Two windows that agree are no noise, although smoothing has not caught up.
        recent = min(max(smoothed, min(previous, measured.p90)), max(previous, measured.p90))
        if not self.seconds:
            self.seconds = recent
        elif not measured.is_full or recent <= self.seconds:
            self.seconds += _WEIGHT * (recent - self.seconds)
        elif self.queue(measured, recent) < few:
            self.seconds += _UPWARDS * _WEIGHT * (recent - self.seconds)
        return recent

    def queue(self, measured: Measured, recent: float) -> float:
        """Requests in the API's queue, by Little's law: the requests in flight, less those without a queue."""
        return measured.in_flight * max(0.0, 1.0 - self.seconds / recent)

    def adopt(self, measured: Measured) -> None:
        """Take the baseline from a window without a queue."""
        is_near = abs(measured.p90 - self.seconds) < _NEAR * self.seconds
        self.seconds = (self.seconds + measured.p90) / 2 if is_near else measured.p90

    def clear(self) -> None:
        """Do not smooth across a change of the limit."""
        self._windows.clear()
        self._smoothed = 0.0


class CapacityTrend:
    """Requests in flight, throughput and duration of the last windows in which the limit was reached."""

    def __init__(self) -> None:
        self._windows: deque[Measured] = deque(maxlen=_WINDOWS)

    def is_overload(self, measured: Measured) -> bool:
        """Add a window, and return whether more requests in flight took longer without increasing throughput."""
        if not measured.is_full:
            return False
        self._windows.append(measured)
        in_flight = [window.in_flight for window in self._windows]
        if len(in_flight) < _AT_LEAST or pstdev(in_flight) < _VARIATION * fmean(in_flight):
            return False
        throughput = [window.throughput for window in self._windows]
        seconds = [window.mean for window in self._windows]
        return _correlation(in_flight, throughput) < _NO_GAIN and _correlation(in_flight, seconds) > _SLOWER

    def clear(self) -> None:
        """Forget the windows, because conditions have changed."""
        self._windows.clear()


def _correlation(one: list[float], other: list[float]) -> float:
    """Pearson's coefficient, or 0 if the other does not vary."""
    return correlation(one, other) if min(other) != max(other) else 0.0


class Experiment(msgspec.Struct, frozen=True):
    """Lowers the limit: does a request take less time when fewer are in flight?

    If so, requests were waiting in a queue. Otherwise the API itself takes that long.

    Attributes:
        before: the window before it.
        limit: restored afterwards.
    """

    before: Measured
    limit: float

    def is_over(self, measured: Measured) -> bool:
        """Whether the requests in flight have changed enough."""
        return measured.in_flight <= _ENOUGH * self.before.in_flight

    def shows_queue(self, measured: Measured) -> bool:
        """Whether fewer requests took less time."""
        return self._is_conclusive(measured) and self._followed(measured) >= _HALF

    def shows_none(self, measured: Measured) -> bool:
        """Whether fewer requests took as long. If they took much longer, something else has changed."""
        return self._is_conclusive(measured) and -_HALF < self._followed(measured) < _HALF

    def _is_conclusive(self, measured: Measured) -> bool:
        return self.is_over(measured) and self.before.is_steady and measured.is_steady

    def _followed(self, measured: Measured) -> float:
        return log(measured.mean / self.before.mean) / log(measured.in_flight / self.before.in_flight)
