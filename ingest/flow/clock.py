"""One clock for all workers: the queue's clock, continued between heartbeats by the monotonic clock of the machine.

The queue's clock is the clock of its Redis server. Each heartbeat reports this clock in return, so that the queue's clock continues
steadily when the server's clock is set, or a replica is promoted.

With a wrong wall clock, a worker would otherwise stamp documents as newer or older than they are.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

# A sample that took much longer than the best one is less exact, unless the best one is older than this many seconds.
_GOOD_FOR = 60.0

steady: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds that never jump. They include the time that the machine sleeps, if the system has such a clock."""


class SharedClock:
    """Unix time by the queue server, or by the machine's wall clock until the first sample.

    Args:
        monotonic: seconds.
    """

    def __init__(self, *, monotonic: Callable[[], float] = steady) -> None:
        self._monotonic = monotonic
        self._offset = time.time() - monotonic()
        self._best = float("inf")
        self._best_at = 0.0
        self._error: float | None = None
        self._latest = 0.0

    def sample(self, server_time: float, asked_at: float) -> None:
        """Adopt the server's time, which it sent between `asked_at` (monotonic) and now (Cristian, 1989)."""
        now = self._monotonic()
        error = (now - asked_at) / 2
        bounds = self.bounds()
        # Another process has put the queue's clock forward since the best sample.
        is_contradicted = bounds is not None and not bounds[0] - (now - asked_at) <= server_time <= bounds[1]
        is_outdated = is_contradicted or now - self._best_at > _GOOD_FOR
        if error <= 2 * self._best:
            self._offset = server_time - (now + asked_at) / 2
            self._error = error
        elif is_outdated:
            # The least change that agrees with a slow reply. The middle can be far ahead after a freeze.
            self._offset = min(max(self._offset, server_time - now), server_time - asked_at)
            self._error = 2 * error
        if error <= self._best or is_outdated:
            self._best, self._best_at = error, now

    def bounds(self) -> tuple[float, float] | None:
        """Return between which times the server's clock is, unless it was set, or None before the first sample."""
        if self._error is None:
            return None
        now = self._monotonic() + self._offset
        return now - self._error, now + self._error

    def now(self) -> float:
        """Unix seconds, which never go back once the server's time is known."""
        now = self._monotonic() + self._offset
        if self._error is not None:
            self._latest = now = max(now, self._latest)
        return now

    def utc(self) -> datetime:
        """The same time in UTC."""
        return datetime.fromtimestamp(self.now(), UTC)
