"""Decides, window by window, how many requests at a time the external API can process. Pure: no clock, no input and output.

The rule is that of TCP Vegas (Brakmo, Peterson, 1995) with the thresholds of failsafe-go's limiter (`adaptivelimiter.go`): fewer than
3 * log10(limit) requests in the API's queue raise the limit, if it was reached; more than 6 * log10(limit) lower it, by log10(limit).
docs/explanation/adaptive-concurrency.md says what is added to it and why.
"""

from math import log10

from ingest.flow.pace.attempt_window import Measured
from ingest.flow.pace.capacity_trend import CapacityTrend
from ingest.flow.pace.latency_baseline import LatencyBaseline
from ingest.flow.pace.limit_experiment import Experiment

# Where it begins, as in failsafe-go (`initialLimit`): few enough that the first window shows an API without a queue.
_FIRST = 20.0
# In units of log10(limit), as in failsafe-go (`alphaFunc`, `betaFunc`, `increaseFunc`).
_FEW_WAIT = 3.0
_MANY_WAIT = 6.0
# Steps in a row after which the limit doubles with each window (slow start; Jacobson, 1988).
_STEPS_UNTIL_DOUBLING = 1
# A queue of this share of all requests is no noise: it is cut off at once, and at most half of the limit.
_LONG_QUEUE = 0.25
_MOST_LOWERED = 0.5
# Refusals lower it by a tenth, as Vector's ARC does (`decrease_ratio`). For this many windows it is not raised again: refusals stay rare.
_CUT = 0.9
_WINDOWS_AFTER_CUT = 4
# A step is at most two to the power of this times log10(limit).
_LONGEST_STEP = 4
# Nor is it doubled for this many windows, and twice as many each time that doubling has led to refusals.
_UNTIL_DOUBLED = 10
_LONGEST_UNTIL_DOUBLED = 80
# A probe leaves this part of the limit. With fewer than the least there is nothing to learn; a p90 this little above the baseline
# is what it was.
_PROBED = 0.8
_LEAST_TO_PROBE = 5.0
_AS_EVER = 1.02


class CapacitySearch:
    """The search of one process.

    Attributes:
        limit: requests at a time; `AdaptiveLimit` rounds it down.

    Args:
        most: requests at a time, as set.
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
        self._refused_at = 0.0
        self._waits = 0
        self._until_doubled = _UNTIL_DOUBLED
        self._doubles_in = 0

    def decide(self, measured: Measured) -> None:
        """Set the limit by what a window has shown."""
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
        """Lower the limit for one window: all processes do so at the same time, so that it shows whether they make a queue."""
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
        self._experiment = Experiment.after(before, self.limit)
        self._set(_PROBED * self.limit)

    def cut(self, in_flight: int) -> None:
        """The API refuses what it is sent: what was in flight then is about what it takes."""
        taken = min(self.limit, in_flight)
        self._refused_at = taken
        self._waits = _WINDOWS_AFTER_CUT
        if self._is_doubling:
            self._until_doubled = min(2 * self._until_doubled, _LONGEST_UNTIL_DOUBLED)
        self._doubles_in = self._until_doubled
        self._is_doubling = self._is_probing = False
        self._steps = 0
        self._experiment = None
        self._trend.clear()
        self._set(_CUT * taken)

    # -- what may follow a window -----------------------------------------------------------------------------

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
        if self._refused_at and self.limit < self._refused_at + self._step():
            self._waits -= 1
            if self._waits < 0:
                self._set(self.limit + self._step())
            return
        self._refused_at = 0.0
        self._is_doubling = self._steps > _STEPS_UNTIL_DOUBLING and self._doubles_in <= 0
        longer = 2 ** min(self._steps - 1, _LONGEST_STEP)
        self._set(2 * self.limit if self._is_doubling else self.limit + longer * self._step())

    def _lower(self, measured: Measured, queue: float) -> None:
        self._steps = 0
        # The time that requests take shows in advance when it is too much.
        self._refused_at = 0.0
        if queue <= _LONG_QUEUE * measured.in_flight:
            self._experiment = None
            self._set(self.limit - self._step())
            return
        before = self._experiment
        if before is None or before.is_over(measured):
            # One that has shown no queue, and not that there is none, is made again: then the limit before it is restored.
            limit = self.limit if before is None or before.shows_queue(measured) else before.limit
            self._experiment = Experiment.after(measured, limit)
        self._set(max(self.limit - queue, _MOST_LOWERED * self.limit))

    def _restore(self, measured: Measured, experiment: Experiment) -> None:
        """Fewer took as long: the API itself has become slower, and nothing waits in it."""
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
    """Whether a limit differs so much from the one before that it shows in how long requests take."""
    return abs(after - before) > 0.05 * before  # about what the noise of a window is
