"""How many orders may be in flight: as many as set, less while the external API throttles.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): a fifth off when the API says that it is too much, at most once
for the requests that were under way together; one more for each round of answers. Far below the last limit that was too
much, the limit doubles with each round (slow start, Jacobson, 1988).
"""

from ingest.telemetry.board import Gauge

_CUT = 0.8
_FAR_BELOW = 0.75


class ConcurrencyLimit:
    """The limit of one process.

    Attributes:
        value: orders that may be in flight now.

    Args:
        most: orders, as set.
        gauge: shows the limit.
    """

    def __init__(self, most: int, gauge: Gauge) -> None:
        self._most = most
        self._exact = self._too_much = float(most)
        self._gauge = gauge
        self._answers_until_next_cut = 0
        self.value = most
        gauge.set(most)

    def answered(self) -> None:
        """An answer that was not "too much"."""
        if self.value < self._most:
            self._answers_until_next_cut -= 1
            step = 1.0 if self._exact < _FAR_BELOW * self._too_much else 1.0 / self._exact
            self._set(min(float(self._most), self._exact + step))

    def throttled(self) -> None:
        """The API said that it was too much."""
        if self._answers_until_next_cut > 0:
            self._answers_until_next_cut -= 1
            return
        # What is under way was sent before this cut, and says nothing of it.
        self._answers_until_next_cut = self.value
        self._too_much = self._exact
        self._set(max(1.0, self._exact * _CUT))

    def forget(self) -> None:
        """An outage is over: what was too much for the API then says nothing about now."""
        self._too_much = float(self._most)

    def _set(self, exact: float) -> None:
        self._exact = exact
        self.value = int(exact)
        self._gauge.set(self.value)
