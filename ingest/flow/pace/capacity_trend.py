"""Detects from the last windows whether more concurrent requests still increase throughput. Pure arithmetic."""

from collections import deque
from statistics import correlation, fmean, pstdev

from ingest.flow.pace.attempt_window import Measured

# failsafe-go keeps 50 windows and asks for 10 (`correlationWindow`, `warmupSamples`). Twenty forget an earlier capacity sooner.
_WINDOWS = 20
_AT_LEAST = 10
# Relative deviation of the requests in flight below which the rest is noise.
_VARIATION = 0.03
# failsafe-go's thresholds of an overload: durations rise with the requests in flight, and throughput does not.
_NO_GAIN = 0.3
_SLOWER = 0.5


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
