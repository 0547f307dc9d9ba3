"""A shared quota in memory for processes in virtual time, which books the same times as the script."""

import math
from collections.abc import Callable

from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits

_FORGOTTEN_AFTER = 4.0
_LEARNING = 2.0


class MemoryQuota:
    """The server of one quota.

    Attributes:
        is_available: whether calls succeed.
        calls: number of calls.
        paused_until: end of the pause of all processes.
    """

    def __init__(self, limits: QuotaLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self.is_available = True
        self.calls = 0
        self.paused_until = 0.0
        self._learning_until = 0.0
        self._next = 0.0
        self._slowest = self._slow_until = 0.0
        self._asked: dict[str, tuple[float, int]] = {}

    def lose(self) -> None:
        """Lose the whole state, like a server that restarts without persistence."""
        self._asked.clear()
        self._next = 0.0
        self._learning_until = self.clock() + _LEARNING

    def member(self, name: str) -> "MemoryLeases":
        """The leases of one process."""
        return MemoryLeases(self, name)

    def lease(self, name: str, request: LeaseRequest) -> Lease:
        """As the script does, but for a concurrency that is divided equally."""
        now = self.clock()
        if not self.is_available:
            raise QueueUnavailable("down")
        self.calls += 1
        if request.is_back:
            self._learning_until = max(self._learning_until, now + _LEARNING)
        _, held = self._asked.get(name, (now, 0))
        self._asked = {key: at for key, at in self._asked.items() if at[0] > now - _FORGOTTEN_AFTER and key != name}
        members = len(self._asked) + 1
        paused = max(0.0, self.paused_until - now)
        is_learning = now < self._learning_until
        free = self.limits.concurrency - sum(held for _, held in self._asked.values())
        limit = request.concurrency
        if self.limits.concurrency:
            limit = max(0, min(limit, math.ceil(self.limits.concurrency / members), free))
            if self.limits.concurrency < members and held and not request.is_unused:
                limit = 0
        self._asked[name] = now, max(request.claim if is_learning else limit, request.in_flight)
        if is_learning or paused or not self.limits.rate:
            renew_in = min(0.25, self._learning_until - now + 0.001) if is_learning else min(1.0, paused + 0.001)
            self._next = max(self._next, now + paused if paused else 0.0)
            if not self.limits.starts_full:
                self._next = max(self._next, now, self._learning_until)
            return Lease(limit=limit, members=members, is_learning=is_learning, paused=paused, renew_in=renew_in)
        return self._book(request, members, limit, now)

    def end(self, name: str, unused: int) -> None:
        """As the script does."""
        self._asked.pop(name, None)
        if self.limits.rate:
            self._next -= unused / self.limits.rate

    def _book(self, request: LeaseRequest, members: int, limit: int, now: float) -> Lease:
        if request.slow_for:
            self._slowest, self._slow_until = request.slowest, now + request.slow_for
        interval = 1 / min(request.rate or self.limits.rate, self._slowest if now < self._slow_until else math.inf)
        # A process without concurrency cannot use times to send.
        has_none = self.limits.concurrency > 0 and limit == 0
        period = 0.1 if has_none else min(1.0, max(0.1, members * interval))
        start = max(self._next, now - (self.limits.burst - 1) * interval)
        if start - now > 2 * period + interval:
            # Not booked far ahead, so that a process that dies loses few, and another rate applies soon.
            self._next = start
            renew_in = min(1.0, start - now - period)
            return Lease(limit=limit, members=members, period=period, renew_in=renew_in)
        ready = int((now - start) / interval) + 1 if start <= now else 0
        tokens = 0 if has_none else min(request.tokens, max(1, int(period / interval / members), ready // members))
        self._next = start + tokens * interval
        spacing = interval + max(0.0, start - now) / tokens if tokens >= 4 else interval
        return Lease(tokens, start - now, spacing, limit, period, period / 4, members)


class MemoryLeases:
    """Keeps the contract of `QuotaLeases` for one process."""

    def __init__(self, quota: MemoryQuota, name: str) -> None:
        self._quota = quota
        self._name = name

    async def lease(self, request: LeaseRequest) -> Lease:
        return self._quota.lease(self._name, request)

    async def end(self, unused: int) -> None:
        self._quota.end(self._name, unused)
