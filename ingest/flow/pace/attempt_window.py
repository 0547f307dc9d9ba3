"""Summarizes the attempts of about a second: the API's response times and the number of concurrent requests.

An attempt is one HTTP request. The pauses between several tries for one order do not count.
"""

import msgspec

# Seconds. As in failsafe-go's limiter (`WithRecentWindow(1s, 30s, 50)`, `adaptivelimiter.go`).
_SHORTEST = 1.0
_LONGEST = 30.0
# Seconds without a longer attempt.
_AFTER_LONGEST = 0.5
_ENOUGH = 50
# Enough at the end of the longest window, for a slow API. A p90 of fewer attempts is meaningless.
_ENOUGH_OF_A_SLOW_API = 10
# p90, as in failsafe-go. It shows a queue earlier than the median, and is steadier than the maximum.
_QUANTILE = 0.9
# Shares of the limit that count as reaching it: the peak and the average.
_FULL_AT_PEAK = 0.9
_FULL_ON_AVERAGE = 0.5
_STEADY = 0.25
# The resolution of a clock in seconds.
_CLOCK = 1e-6
_LATER = float("inf")


class Measured(msgspec.Struct, frozen=True):
    """The measurements of one window.

    Attributes:
        p90: the 90th percentile of the response time, in seconds.
        mean: the mean response time, in seconds.
        in_flight: concurrent attempts, on average.
        throughput: documents per second.
        is_full: whether the limit was reached.
    """

    p90: float
    mean: float
    in_flight: float
    throughput: float
    is_full: bool

    @property
    def is_steady(self) -> bool:
        """Whether arrivals match departures (Little's law). While a queue builds up, durations lag behind it."""
        return abs(self.throughput * self.mean - self.in_flight) < _STEADY * self.in_flight


class AttemptWindow:
    """The attempts since the beginning of a window.

    Attributes:
        began_at: monotonic seconds.
        peak: attempts in flight, at most.
        overloads: attempts with an overload response or a timeout.
        loaded: the most attempts in flight at an overload.

    Args:
        began_at: monotonic seconds.
        in_flight: attempts in flight at the beginning.
        limit: attempts that may be in flight. It takes effect when the attempts above it have ended.
        is_new: whether the limit has changed. If so, only attempts that begin under the new limit count, and the window is long
            enough for slow attempts.
    """

    def __init__(self, began_at: float, in_flight: int, limit: int, *, is_new: bool) -> None:
        self.began_at = began_at
        self._limit = limit
        self._is_new = is_new
        self._counts_from = 0.0 if not is_new else began_at if in_flight <= limit else _LATER
        self._due = began_at + _SHORTEST
        self._seconds: list[float] = []
        self._first = 0.0
        self._in_flight = 0
        self.peak = in_flight
        self.overloads = self.loaded = 0

    def add(self, started_at: float, ended_at: float, in_flight: int) -> bool:
        """Count a document, and return whether the window may be closed."""
        if started_at < self._counts_from:
            if self._counts_from == _LATER and in_flight <= self._limit:
                self._counts_from = ended_at
                self._due = ended_at + _SHORTEST
            return False
        seconds = ended_at - started_at
        self._first = self._first or ended_at
        self._seconds.append(seconds)
        self._in_flight += in_flight
        if self._is_new:
            # Wait for the slow attempts that began under the new limit.
            self._due = max(self._due, self._counts_from + seconds + _AFTER_LONGEST)
        is_late = ended_at >= self.began_at + _LONGEST
        enough = _ENOUGH_OF_A_SLOW_API if is_late else _ENOUGH
        return ended_at >= self._due and len(self._seconds) >= enough

    @property
    def ended(self) -> int:
        """Attempts that count for this limit: documents and overloads."""
        return len(self._seconds) + self.overloads

    def add_overload(self, started_at: float, in_flight: int) -> None:
        """Count an overload response or a timeout, if it belongs to this limit."""
        if started_at >= self.began_at and in_flight <= self._limit:
            self.overloads += 1
            self.loaded = max(self.loaded, in_flight)

    def measure(self, now: float) -> Measured:
        """The measurements until now."""
        ordered = sorted(max(seconds, _CLOCK) for seconds in self._seconds)
        in_flight = self._in_flight / len(ordered)
        return Measured(
            p90=ordered[int(_QUANTILE * (len(ordered) - 1))],
            mean=sum(ordered) / len(ordered),
            in_flight=in_flight,
            throughput=(len(ordered) - 1) / max(now - self._first, 1e-9),
            is_full=self.peak >= _FULL_AT_PEAK * self._limit and in_flight >= _FULL_ON_AVERAGE * self._limit,
        )
