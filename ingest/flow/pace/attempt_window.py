"""Sums up the attempts of about a second: how long the API took, and how many requests it had at a time.

An attempt is one HTTP request. A sequence of tries for one order is several of them, and the pauses between are none of the API's.
"""

import msgspec

SHORTEST = 1.0
"""Seconds. As in failsafe-go's limiter (`WithRecentWindow(1s, 30s, 50)`, `adaptivelimiter.go`)."""
_LONGEST = 30.0
# Seconds for which nothing has taken longer.
_AFTER_LONGEST = 0.5
_ENOUGH = 50
# After the longest time, a slow API has sent no more; with fewer, a p90 says nothing.
_ENOUGH_OF_A_SLOW_API = 10
# p90, as in failsafe-go: it shows a queue earlier than the median, and is steadier than the slowest answer.
_QUANTILE = 0.9
# Sorting more would hold up the event loop for over a millisecond, and they would tell nothing more.
_MOST_SAMPLES = 5_000
# The limit was reached if so much of it was used at some moment, and so much on average.
_FULL_AT_PEAK = 0.9
_FULL_ON_AVERAGE = 0.5
_STEADY = 0.25
# Seconds: what a clock may not tell apart.
_CLOCK = 1e-6
_LATER = float("inf")


class Measured(msgspec.Struct, frozen=True):
    """What one window has shown.

    Attributes:
        p90: seconds within which nine of ten documents came.
        mean: seconds of a document.
        in_flight: attempts at a time, on average.
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
        """Whether as many come in as go out (Little's law): while a queue builds up, durations lag behind it."""
        return abs(self.throughput * self.mean - self.in_flight) < _STEADY * self.in_flight


class AttemptWindow:
    """The attempts since a moment.

    Attributes:
        began_at: monotonic seconds.
        peak: attempts in flight, at most.
        overloads: attempts that the API refused or let time out.
        loaded: attempts in flight when it did so, at most.

    Args:
        began_at: monotonic seconds.
        in_flight: attempts at its beginning.
        limit: attempts that may be in flight; it holds from when those above it have ended.
        is_new: whether the limit is another than before. Then only attempts that begin under it are counted, and the
            window is long enough for the slow ones, too.
    """

    __slots__ = (
        "_counts_from", "_due", "_first", "_in_flight", "_is_new", "_limit", "_longest", "_samples", "_seconds",
        "began_at", "loaded", "overloads", "peak",
    )  # fmt: skip

    def __init__(self, began_at: float, in_flight: int, limit: int, *, is_new: bool) -> None:
        self.began_at = began_at
        self._limit = limit
        self._is_new = is_new
        self._counts_from = 0.0 if not is_new else began_at if in_flight <= limit else _LATER
        self._due = began_at + SHORTEST
        self._longest = 0.0
        self._seconds: list[float] = []
        self._samples = 0
        self._first = 0.0
        self._in_flight = 0
        self.peak = in_flight
        self.overloads = self.loaded = 0

    def add(self, started_at: float, ended_at: float, in_flight: int) -> bool:
        """Count a document; returns whether the window may be closed."""
        if started_at < self._counts_from:
            if self._counts_from == _LATER and in_flight <= self._limit:
                self._counts_from = ended_at
                self._due = ended_at + SHORTEST
            return False
        seconds = ended_at - started_at
        self._samples += 1
        self._in_flight += in_flight
        if self._samples <= _MOST_SAMPLES:
            self._seconds.append(seconds)
        if seconds > self._longest:
            self._note_longest(seconds, ended_at)
        return ended_at >= self._due and (
            self._samples >= _ENOUGH
            or (self._samples >= _ENOUGH_OF_A_SLOW_API and ended_at >= self.began_at + _LONGEST)
        )

    def _note_longest(self, seconds: float, ended_at: float) -> None:
        if not self._longest:
            self._first = ended_at
        self._longest = seconds
        if self._is_new:
            # Until nothing that begins under the new limit takes longer, the slow ones are still to come.
            self._due = max(self._due, self._counts_from + seconds + _AFTER_LONGEST)

    @property
    def ended(self) -> int:
        """Attempts that say something about this limit: documents, and refusals."""
        return self._samples + self.overloads

    def add_overload(self, started_at: float, in_flight: int) -> None:
        """Count an attempt that was refused or not answered in time, if it says something about this limit."""
        if started_at >= self.began_at and in_flight <= self._limit:
            self.overloads += 1
            self.loaded = max(self.loaded, in_flight)

    def measure(self, now: float) -> Measured:
        """What it has shown until now."""
        ordered = sorted(max(seconds, _CLOCK) for seconds in self._seconds)
        in_flight = self._in_flight / self._samples
        return Measured(
            p90=ordered[int(_QUANTILE * (len(ordered) - 1))],
            mean=sum(ordered) / len(ordered),
            in_flight=in_flight,
            throughput=(self._samples - 1) / max(now - self._first, 1e-9),
            is_full=self.peak >= _FULL_AT_PEAK * self._limit and in_flight >= _FULL_ON_AVERAGE * self._limit,
        )
