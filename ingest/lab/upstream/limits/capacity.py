"""An API that processes a certain number of requests at a time: the others wait in its queue, and too many are refused.

The time at which each request will be answered is known when it arrives, so no request needs a task or a timer of its own. A
change of the capacity holds for requests that arrive later; those that have been accepted keep their times.
"""

from bisect import bisect_right, insort


class Capacity:
    """The requests that are processed or wait, first come, first served.

    Attributes:
        capacity: requests processed at a time; 0 is no limit.
        queue: requests that may wait.
    """

    def __init__(self, capacity: int = 0, queue: int = 0) -> None:
        self.capacity = capacity
        self.queue = queue
        self._ends: list[float] = []

    def take(self, now: float, seconds: float) -> float | None:
        """Accept a request whose processing takes `seconds`; returns the seconds until its answer, None if it is refused."""
        ends = self._ends
        del ends[: bisect_right(ends, now)]
        if len(ends) >= self.capacity + self.queue:
            return None
        # It begins when fewer than `capacity` of those before it are left.
        begins = max(now, ends[-self.capacity]) if len(ends) >= self.capacity else now
        insort(ends, begins + seconds)
        return begins + seconds - now
