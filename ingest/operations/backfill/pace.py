"""Limits how many orders of a backfill are in the main lane, so that a live order does not wait behind many of them."""

import math
import time
from collections.abc import Callable

# A live order waits behind the backfilled orders of this many seconds.
_AHEAD_SECONDS = 2.0
_LEAST, _MOST = 10, 1000


class BackfillPace:
    """Returns how many orders may be enqueued now.

    The limit follows the workers: it is the number of orders that they finish within two seconds, from 10 to 1,000. A lane with a
    longer backlog of live orders gets no backfilled orders.

    Args:
        rate: limit of enqueued orders per second, or None.
        clock: monotonic, in seconds.

    Attributes:
        limit: entries of the lane from which on no orders are enqueued.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self.limit = _LEAST
        # The occupied entries when the last ones were finished, and those that were enqueued since.
        self._occupied = 0
        self._finished_at = clock()
        self._budget = 1.0
        self._budget_at = clock()

    def granted(self, occupied: int) -> int:
        """Return how many orders may be enqueued, given the entries of the lane that workers have not finished."""
        now = self._clock()
        if self._occupied and not occupied:
            # The workers may be faster than the lane was filled.
            self.limit = min(_MOST, 2 * self.limit)
        elif occupied < self._occupied and now > self._finished_at:
            # Workers finish orders in batches, so that the time since the last batch counts.
            finished = (self._occupied - occupied) / (now - self._finished_at)
            self.limit = max(_LEAST, min(_MOST, math.ceil(_AHEAD_SECONDS * finished)))
        if occupied != self._occupied:
            self._occupied, self._finished_at = occupied, now
        return max(0, min(self.limit - occupied, self._within_rate(now)))

    def note(self, enqueued: int) -> None:
        """Note that orders were enqueued."""
        if not self._occupied:
            self._finished_at = self._clock()
        self._occupied += enqueued
        self._budget -= enqueued

    def _within_rate(self, now: float) -> int:
        if self._rate is None:
            return _MOST
        # At most the orders of one second may be enqueued together after a pause.
        self._budget = min(max(1.0, self._rate), self._budget + (now - self._budget_at) * self._rate)
        self._budget_at = now
        return int(self._budget)
