"""Limits the concurrent requests of the API. Others wait in a queue, and excess requests are rejected.

The time of each response is computed when the request arrives, so that requests do not need their own tasks or timers.
A change of the capacity applies to requests that arrive later. Accepted requests keep their times.
"""

from bisect import bisect_right, insort


class Capacity:
    """The requests that are processed or wait, first come, first served.

    Attributes:
        capacity: requests processed concurrently, or 0 for no limit.
        queue: requests that can wait.
    """

    def __init__(self, capacity: int = 0, queue: int = 0) -> None:
        self.capacity = capacity
        self.queue = queue
        self._ends: list[float] = []

    def take(self, now: float, seconds: float) -> float | None:
        """Accept a request that takes `seconds`, and return the seconds until its response, or None if rejected."""
        ends = self._ends
        del ends[: bisect_right(ends, now)]
        if len(ends) >= self.capacity + self.queue:
            return None
        # It begins when fewer than `capacity` previous requests remain.
        begins = max(now, ends[-self.capacity]) if len(ends) >= self.capacity else now
        insort(ends, begins + seconds)
        return begins + seconds - now
