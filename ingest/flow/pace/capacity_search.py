"""Decides after each window how many concurrent requests the external API can process. Pure code without a clock or I/O.

The rule is TCP Vegas (Brakmo, Peterson, 1995) with the thresholds of failsafe-go's limiter (`adaptivelimiter.go`). Fewer than
3 * log10(limit) requests in the API's queue raise the limit if it was reached. More than 6 * log10(limit) lower it by log10(limit).
docs/explanation/adaptive-concurrency.md describes the additions to this rule.
"""

from math import log10

from ingest.flow.pace.attempt_window import Measured
from ingest.flow.pace.capacity_evidence import CapacityTrend, Experiment, LatencyBaseline

# The first limit, as in failsafe-go (`initialLimit`). It is low enough that the first window shows the API without a queue.
_FIRST = 20.0
# In units of log10(limit), as in failsafe-go (`alphaFunc`, `betaFunc`, `increaseFunc`).
_FEW_WAIT = 3.0
_MANY_WAIT = 6.0
# Steps in a row after which the limit doubles with each window (slow start, Jacobson, 1988).
_STEPS_UNTIL_DOUBLING = 1
# A queue of this share of all requests is no noise. The limit is lowered by the whole queue, by at most half.
_LONG_QUEUE = 0.25
_MOST_LOWERED = 0.5
# An overload lowers the limit by 10 %, as Vector's ARC does (`decrease_ratio`), and keeps it for this many windows.
_CUT = 0.9
_WINDOWS_AFTER_CUT = 4
# A step is at most two to the power of this times log10(limit).
_LONGEST_STEP = 4
# The limit is not doubled for this many windows after an overload, and for twice as many each time that doubling caused one.
_UNTIL_DOUBLED = 10
_LONGEST_UNTIL_DOUBLED = 80
# A probe lowers the limit to this share. Below the least limit there are no probes. A p90 of up to this ratio to the baseline
# counts as unchanged.
_PROBED = 0.8
_LEAST_TO_PROBE = 5.0
_AS_EVER = 1.02


class CapacitySearch:
    """The search of one process.

    Attributes:
        limit: concurrent requests, which `AdaptiveLimit` rounds down.
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self.limit = min(self._most, _FIRST)
        self._baseline = LatencyBaseline()
        self._trend = CapacityTrend()
        self._latest: Measured | None = None
        self._experiment: Experiment | None = None
        self._is_probing = False
        self._is_doubling = True
        self._steps = 0
        self._overloaded_at = 0.0
        self._waits = 0
        self._until_doubled = _UNTIL_DOUBLED
        self._doubles_in = 0

    def decide(self, measured: Measured) -> None:
        """Set the limit by the measurements of a window."""
        self._latest = measured
        self._doubles_in -= 1
        if self._is_probing and self._experiment is not None:
            self._end_probe(measured, self._experiment)
            return
        step = self._step()
        recent = self._baseline.observe(measured, _FEW_WAIT * step)
        is_overload = self._trend.is_overload(measured)
        if self._is_doubling:
            self._double(measured)
            return
        queue = self._baseline.queue(measured, recent)
        if self._experiment is not None and self._experiment.shows_none(measured):
            self._restore(measured, self._experiment)
        elif queue > _MANY_WAIT * step or (is_overload and queue > _FEW_WAIT * step):
            self._lower(measured, queue)
        elif queue < _FEW_WAIT * step and measured.is_full:
            self._raise()
        else:
            self._steps = 0
            self._experiment = None

    def probe(self) -> None:
        """Lower the limit for one window. All processes do so at the same time, which shows whether they cause a queue."""
        before = self._latest
        if (
            before is None
            or not before.is_full
            or self._is_doubling
            or self._is_probing
            or self.limit < _LEAST_TO_PROBE
        ):
            return
        if self.limit == self._most and before.p90 < _AS_EVER * self._baseline.seconds:
            return
        self._is_probing = True
        self._experiment = Experiment(before, self.limit)
        self._set(_PROBED * self.limit)

    def cut(self, in_flight: int) -> None:
        """The API is overloaded. The requests in flight at that moment are about its capacity."""
        taken = min(self.limit, in_flight)
        self._overloaded_at = taken
        self._waits = _WINDOWS_AFTER_CUT
        if self._is_doubling:
            self._until_doubled = min(2 * self._until_doubled, _LONGEST_UNTIL_DOUBLED)
        self._doubles_in = self._until_doubled
        self._is_doubling = self._is_probing = False
        self._steps = 0
        self._experiment = None
        self._trend.clear()
        self._set(_CUT * taken)

    # -- after a window ---------------------------------------------------------------------------------------

    def _double(self, measured: Measured) -> None:
        if self._baseline.queue(measured, measured.p90) > max(
            _MANY_WAIT * self._step(), _LONG_QUEUE * measured.in_flight
        ):
            self._is_doubling = False
            self._steps = 0
            self._trend.clear()
            self._set(max(_MOST_LOWERED, self._baseline.seconds / measured.p90) * self.limit)
        elif measured.is_full:
            self._set(2 * self.limit)

    def _raise(self) -> None:
        self._experiment = None
        self._steps += 1
        if self._overloaded_at and self.limit < self._overloaded_at + self._step():
            self._waits -= 1
            if self._waits < 0:
                self._set(self.limit + self._step())
            return
        self._overloaded_at = 0.0
        self._is_doubling = self._steps > _STEPS_UNTIL_DOUBLING and self._doubles_in <= 0
        longer = 2 ** min(self._steps - 1, _LONGEST_STEP)
        self._set(2 * self.limit if self._is_doubling else self.limit + longer * self._step())

    def _lower(self, measured: Measured, queue: float) -> None:
        self._steps = 0
        # Response times show a queue before the API is overloaded.
        self._overloaded_at = 0.0
        if queue <= _LONG_QUEUE * measured.in_flight:
            self._experiment = None
            self._set(self.limit - self._step())
            return
        before = self._experiment
        if before is None or before.is_over(measured):
            # An inconclusive experiment is repeated. Afterwards the limit from before it is restored.
            limit = self.limit if before is None or before.shows_queue(measured) else before.limit
            self._experiment = Experiment(measured, limit)
        self._set(max(self.limit - queue, _MOST_LOWERED * self.limit))

    def _restore(self, measured: Measured, experiment: Experiment) -> None:
        """Fewer requests took as long, so the API itself has become slower without a queue."""
        self._baseline.adopt(measured)
        self._trend.clear()
        self._steps = 0
        self._experiment = None
        self._set(experiment.limit)

    def _end_probe(self, measured: Measured, probe: Experiment) -> None:
        self._is_probing = False
        if measured.p90 < self._baseline.seconds or probe.shows_none(measured):
            self._baseline.adopt(measured)
        self._experiment = None
        self._set(probe.limit)

    def _step(self) -> float:
        return max(1.0, log10(self.limit))

    def _set(self, limit: float) -> None:
        before, self.limit = self.limit, min(self._most, max(1.0, limit))
        self._is_doubling = self._is_doubling and self.limit < self._most
        if is_another(before, self.limit):
            self._baseline.clear()


def is_another(before: float, after: float) -> bool:
    """Whether two limits differ enough to change response times."""
    return abs(after - before) > 0.05 * before  # about what the noise of a window is
