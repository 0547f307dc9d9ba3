"""The pauses between two probes of an API that is unavailable."""

from collections.abc import Callable

from ingest.domain.errors import Fault, ThrottledFault

_FIRST = 0.5
_GROWTH = 1.5
# During an outage the API gets a request from each process in this many seconds; its return is noticed as soon.
_LONGEST = 4.0
# As long as the API asks for, but a probe a minute is no burden to it.
_LONGEST_AS_TOLD = 60.0


class ProbePauses:
    """The pauses of one outage: growing, with jitter, and no shorter than the API asks for.

    Args:
        draw: a uniform random number between its arguments.
        clock: monotonic seconds.
    """

    def __init__(self, draw: Callable[[float, float], float], clock: Callable[[], float]) -> None:
        self._draw = draw
        self._clock = clock
        self._count = 0
        self._told_until = 0.0

    def restart(self, fault: Fault) -> None:
        """An outage begins with this fault; the API may have asked to wait before."""
        self._count = 0
        self.told(fault)

    def told(self, fault: Fault) -> None:
        """The API may have asked to wait."""
        if isinstance(fault, ThrottledFault):
            self._told_until = self._clock() + min(fault.after or 0.0, _LONGEST_AS_TOLD)

    def forget(self) -> None:
        """The outage is over: whatever the API asked for before says nothing about now."""
        self._told_until = 0.0

    def left(self) -> float:
        """Seconds for which the API has asked to wait from now on; 0 or less if it has not."""
        return self._told_until - self._clock()

    def next(self) -> float:
        """Seconds until the next probe."""
        longest = min(_LONGEST, _FIRST * _GROWTH ** min(self._count, 30))
        self._count += 1
        return max(self.left(), self._draw(0.75 * longest, longest))
