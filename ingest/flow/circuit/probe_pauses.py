"""The pauses between two probes of an unavailable API."""

from collections.abc import Callable

from ingest.domain.errors import Fault, ThrottledFault
from ingest.domain.exponential_pause import exponential_pause

_FIRST = 0.5
_GROWTH = 1.5
# During an outage each process sends a request in this many seconds, and notices the end of the outage as soon.
_LONGEST = 4.0
# The longest observed Retry-After, because one probe a minute is no burden.
_LONGEST_RETRY_AFTER = 60.0


class ProbePauses:
    """The pauses of one outage: growing, with jitter, and no shorter than the API asks for."""

    def __init__(self, draw: Callable[[float, float], float], clock: Callable[[], float]) -> None:
        self._draw = draw
        self._clock = clock
        self._count = 0
        self._asked_until = 0.0

    def restart(self, fault: Fault) -> None:
        """An outage begins with this fault."""
        self._count = 0
        self.observe(fault)

    def observe(self, fault: Fault) -> None:
        """Note the time that the API asks to wait, if it does."""
        if isinstance(fault, ThrottledFault):
            self._asked_until = self._clock() + min(fault.after or 0.0, _LONGEST_RETRY_AFTER)

    def forget(self) -> None:
        """After the end of an outage, forget the time that the API asked to wait."""
        self._asked_until = 0.0

    def left(self) -> float:
        """Seconds for which the API has asked to wait from now on, 0 or less if it has not."""
        return self._asked_until - self._clock()

    def next(self) -> float:
        """Seconds until the next probe."""
        longest = exponential_pause(_FIRST, _LONGEST, self._count, _GROWTH)
        self._count += 1
        return max(self.left(), self._draw(0.75 * longest, longest))
