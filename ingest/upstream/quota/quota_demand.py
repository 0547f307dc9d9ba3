"""How many requests this process will want to send next, by those that it has sent."""

import math

# More than is expected, so that what arrives irregularly need not wait for the next period.
_MARGIN = 1.25
_RECENT = 5.0


class Demand:
    """The demand of one process.

    Attributes:
        peak: the most requests that recently waited or were in flight.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._rate = 0.0
        self._learned_at = -math.inf
        self.peak = 0

    def count(self) -> None:
        """A request begins."""
        self._begun += 1

    def learn(self, now: float, period: float, active: int) -> None:
        """Adapt, once in a period, to the requests that have begun since, given how many are in flight or waiting."""
        passed = now - self._learned_at
        rate = self._begun / max(passed, 1e-3)
        self._rate = rate if passed > _RECENT * period else (self._rate + rate) / 2
        self._begun, self._learned_at = 0, now
        self.peak = max(active, self.peak // 2)

    def expected(self, period: float) -> float:
        """Requests that may be wanted within a period."""
        return _MARGIN * self._rate * period
