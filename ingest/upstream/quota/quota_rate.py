"""The rate of a quota over all processes, which the cost of requests and the API's headers change.

Pure, without a clock or tasks.
"""

import math

from ingest.upstream.quota.quota_lease import VALID

# With hardly anything left of the API's quota, a request a minute is no burden, and shows when the API accepts more again.
_SLOWEST = 1 / 60


class QuotaRate:
    """The rate.

    Attributes:
        now: requests per second that the quota allows over all processes, or 0 without a rate.
        is_known: whether a response has shown what requests cost. Until then, one is sent at a time.

    Args:
        rate: requests per second, or units of cost.
        has_cost: whether requests have a cost.
    """

    def __init__(self, rate: float, *, has_cost: bool) -> None:
        self.now = self._slowest = rate
        self._slow_until = -math.inf
        self.is_known = not has_cost

    def adapt(self, rate: float) -> None:
        """By the cost of requests, their quota allows this rate over all processes."""
        self.now, self.is_known = rate, True

    def slow_down(self, rate: float, seconds: float, now: float) -> None:
        """By the API's headers, the rest of its quota allows this rate until it is full again."""
        if rate < self.now:
            self._slowest, self._slow_until = max(rate, min(_SLOWEST, self.now)), now + seconds
        elif self._slowest < self.now:
            # The quota is full again, so that earlier headers no longer apply.
            self._slowest, self._slow_until = self.now, now + VALID

    def slowest(self, now: float) -> tuple[float, float]:
        """Return the rate of the API's headers, and for how many seconds it applies. Both are 0 if it does not."""
        slow_for = max(0.0, self._slow_until - now)
        return (self._slowest if slow_for else 0.0), slow_for
