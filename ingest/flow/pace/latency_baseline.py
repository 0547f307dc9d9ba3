"""The external API's response time without a queue, and the length of its queue when responses take longer."""

from collections import deque
from statistics import median

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


class LatencyBaseline:
    """The baseline of one process.

    Attributes:
        seconds: p90 of an attempt without a queue, or 0 before the first window.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._windows: deque[float] = deque(maxlen=_SMOOTHED)
        self._smoothed = 0.0
        self._latest = 0.0

    def observe(self, measured: Measured, few: float) -> float:
        """Add a window, and return its p90 without noise.

        Args:
            measured: the window.
            few: waiting requests that do not count as a queue.
        """
        previous, self._latest = self._latest or measured.p90, measured.p90
        smoothed = self._smooth(measured.p90)
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
        """The limit has changed: do not smooth across the change."""
        self._windows.clear()
        self._smoothed = 0.0

    def _smooth(self, p90: float) -> float:
        self._windows.append(p90)
        middle = median(self._windows)
        self._smoothed = self._smoothed + _SMOOTHING * (middle - self._smoothed) if self._smoothed else middle
        return self._smoothed
