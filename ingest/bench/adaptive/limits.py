"""The compared limits: ours, two published ones, a fixed one, and the optimum computed from the API's state."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random

from ingest.bench.adaptive.formulas import Arc, Gradient2
from ingest.bench.adaptive.world import Clock, End, Limit, Phase
from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.telemetry.shared_metrics import Gauge

OURS = "ours"
BEST = "optimum"


class Ours(Limit):
    """The limit of a worker: `AdaptiveLimit`, with `Pace` and `Pauses`, which handle a 429."""

    def __init__(self, most: int, clock: Clock, random: Random) -> None:
        self._adaptive = AdaptiveLimit(most, clock=clock, shared=clock)
        self._pauses = Pauses(clock=clock, draw=random.uniform)
        gauge = Gauge(memoryview(array("d", [0.0])), 0)
        self._pace = Pace(most, gauge, self._pauses, adaptive=self._adaptive, clock=clock)

    @property
    def value(self) -> int:  # type: ignore[override]  # read only
        """See `Limit`."""
        return self._pace.requests

    def start(self, now: float) -> None:
        """See `Limit`."""
        del now
        self._pauses.record_start()
        self._adaptive.record_start()

    def end(self, started_at: float, now: float, end: End) -> None:
        """See `Limit`."""
        match end:
            case End.DOCUMENT:
                self._adaptive.record_document(started_at, now)
                self._pace.record_success()
            case End.OVERLOADED:
                self._adaptive.record_overload(started_at)
            case End.THROTTLED:
                self._adaptive.record_end()
                self._pace.record_throttle(1.0, started_at)

    def pause(self, now: float) -> float:
        """See `Limit`."""
        del now
        return self._pauses.delay()


class Fixed(Limit):
    """The configured limit, independent of the API."""

    def __init__(self, most: int) -> None:
        self.value = most


class Best(Limit):
    """Exactly the requests that the API can process at each moment, or that use up its quota."""

    def __init__(self, phases: Sequence[Phase], most: int, clock: Clock) -> None:
        self._clock = clock
        self._ends = list(accumulate(phase.seconds for phase in phases))
        self._values = [min(most, phase.capacity, _by_rate(phase)) for phase in phases]

    @property
    def value(self) -> int:  # type: ignore[override]  # read only
        """See `Limit`."""
        return next((value for end, value in zip(self._ends, self._values, strict=True) if self._clock.now < end), 1)


def _by_rate(phase: Phase) -> int:
    return int(phase.rate * phase.latency) if phase.rate else phase.capacity


def contenders(phases: Sequence[Phase], most: int, seed: int) -> Mapping[str, Callable[[Clock], Limit]]:
    """A factory for each limit, by name."""
    return {
        BEST: lambda clock: Best(phases, most, clock),
        OURS: lambda clock: Ours(most, clock, Random(seed)),
        "Gradient2": lambda _: Gradient2(most),
        "ARC": lambda _: Arc(most),
        "fixed": lambda _: Fixed(most),
    }
