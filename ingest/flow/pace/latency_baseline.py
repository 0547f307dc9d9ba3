"""How long the external API takes without a queue, and how many requests wait in it when it takes longer."""

from collections import deque
from statistics import median

from ingest.flow.pace.attempt_window import Measured

# failsafe-go's: the median of 5 windows drops an unusual one, an average of the same age the noise (`smoothedSamples`), and
# the baseline is an average with an age of 10 windows (`WithBaselineWindow(10)`); the weight of a new value is 2 / (age + 1).
_SMOOTHED = 5
_SMOOTHING = 2 / (5 + 1)
_WEIGHT = 2 / (10 + 1)
# While the limit is reached, what is higher has this part of its weight, and only if it is no queue: this is how a baseline drifts.
_UPWARDS = 0.5
# What differs by less is averaged after a probe, what differs by more is another latency.
_NEAR = 0.25


class LatencyBaseline:
    """The baseline of one process.

    Attributes:
        seconds: p90 of an attempt without a queue; 0 before the first window.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._windows: deque[float] = deque(maxlen=_SMOOTHED)
        self._smoothed = 0.0
        self._latest = 0.0

    def observe(self, measured: Measured, few: float) -> float:
        """Take in a window; returns its p90 without noise.

        Args:
            measured: the window.
            few: waiting requests that are no queue.
        """
        previous, self._latest = self._latest or measured.p90, measured.p90
        smoothed = self._smooth(measured.p90)
        # What two windows show is no noise, and smoothing takes longer to show it.
        recent = min(max(smoothed, min(previous, measured.p90)), max(previous, measured.p90))
        if not self.seconds:
            self.seconds = recent
        elif not measured.is_full or recent <= self.seconds:
            self.seconds += _WEIGHT * (recent - self.seconds)
        elif self.queue(measured, recent) < few:
            self.seconds += _UPWARDS * _WEIGHT * (recent - self.seconds)
        return recent

    def queue(self, measured: Measured, recent: float) -> float:
        """Requests that wait in the API, by Little's law: those in flight less those that would be without waiting."""
        return measured.in_flight * max(0.0, 1.0 - self.seconds / recent)

    def adopt(self, measured: Measured) -> None:
        """No queue was in this window."""
        is_near = abs(measured.p90 - self.seconds) < _NEAR * self.seconds
        self.seconds = (self.seconds + measured.p90) / 2 if is_near else measured.p90

    def clear(self) -> None:
        """The limit is another: what windows have shown under the last one is not to be smoothed with what comes."""
        self._windows.clear()
        self._smoothed = 0.0

    def _smooth(self, p90: float) -> float:
        self._windows.append(p90)
        middle = median(self._windows)
        self._smoothed = self._smoothed + _SMOOTHING * (middle - self._smoothed) if self._smoothed else middle
        return self._smoothed
