"""A shared quota in memory for processes in virtual time.

It writes down each place on the line of time and the claims of each process, and counts them anew for each call, unlike the scripts.
"""

import math
from collections.abc import Callable

import msgspec

from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits

_COUNTS_FOR = 3.5
_LONGEST_SILENCE = 1.0
_LEARNING = 2.0


class _Member(msgspec.Struct):
    """What the server knows of a process: the requests that it may have in flight, and the age of its last call."""

    held: int = 0
    age: float = 0.0


class _Place(msgspec.Struct):
    """A place on the line of time."""

    at: float
    end: float
    owner: str


class MemoryQuota:
    """The server of one quota. A new one has yet to learn which requests are in flight.

    Attributes:
        is_available: whether calls succeed.
        calls: number of calls.
        paused_until: end of the pause of all processes.
    """

    def __init__(self, limits: QuotaLimits, clock: Callable[[], float], *, is_new: bool = False) -> None:
        self.limits = limits
        self.clock = clock
        self.is_available = True
        self.calls = 0
        self.paused_until = 0.0
        self._called_at = clock()
        self._learning_until = clock() + _LEARNING if is_new else 0.0
        self._line: list[_Place] = []
        self._not_before = 0.0
        self._slowest = self._slow_until = 0.0
        self._members: dict[str, _Member] = {}

    def lose(self) -> None:
        """Lose the whole state, like a server that restarts without persistence."""
        self._members.clear()
        self._line.clear()
        self._not_before = 0.0
        self._learning_until = self.clock() + _LEARNING

    def member(self, name: str) -> "MemoryLeases":
        """The leases of one process."""
        return MemoryLeases(self, name)

    def lease(self, name: str, request: LeaseRequest) -> Lease:
        """As the script does, but for a concurrency that is divided equally."""
        now = self._called()
        if request.is_back:
            self._learning_until = max(self._learning_until, now + _LEARNING)
        if request.slow_for:
            self._slowest, self._slow_until = request.slowest, now + request.slow_for
        before = self._members.pop(name, _Member())
        members = len(self._members) + 1
        is_learning, paused = now < self._learning_until, max(0.0, self.paused_until - now)
        limit = self._limit(request, members, before)
        places = [] if is_learning or paused else self._book(name, request, members, limit)
        self._members[name] = _Member(max(request.claim, 0 if is_learning else limit))
        if is_learning or paused:
            if paused:
                self._not_before = max(self._not_before, now + paused)
            if is_learning and not self.limits.starts_full:
                self._not_before = max(self._not_before, self._learning_until)
            renew_in = min(0.25, self._learning_until - now + 0.001) if is_learning else min(1.0, paused + 0.001)
            return Lease(
                limit=limit, members=members, is_learning=is_learning, paused=paused, renew_in=renew_in, time=now
            )
        period, interval = self._period(request, members, limit), self._interval(request)
        starts_in = places[0].at - now if places else 0.0
        renew_in = (
            period / 10 if places or not request.tokens else min(1.0, max(0.1, self._next(request) - now - period))
        )
        return Lease(len(places), starts_in, interval, limit, period, renew_in, members, time=now)

    def end(self, name: str, unused: int) -> None:
        """As the script does."""
        self._called()
        self._members.pop(name, None)
        for _ in range(unused):
            if self._line and self._line[-1].owner == name:
                self._line.pop()

    def _called(self) -> float:
        if not self.is_available:
            raise QueueUnavailable("down")
        now, self.calls = self.clock(), self.calls + 1
        silence, self._called_at = now - self._called_at, now
        for name, member in list(self._members.items()):
            member.age += min(silence, _LONGEST_SILENCE)
            if member.age >= _COUNTS_FOR:
                del self._members[name]
        return now

    def _limit(self, request: LeaseRequest, members: int, before: _Member) -> int:
        quota = self.limits.concurrency
        if not quota:
            return request.concurrency
        if quota < members and before.held and not request.is_unused:
            return 0
        free = quota - sum(member.held for member in self._members.values())
        return max(0, min(request.concurrency, math.ceil(quota / members), free))

    def _interval(self, request: LeaseRequest) -> float:
        if not self.limits.rate:
            return 0.0
        slowest = self._slowest if self.clock() < self._slow_until else math.inf
        return 1 / min(request.rate or self.limits.rate, slowest)

    def _period(self, request: LeaseRequest, members: int, limit: int) -> float:
        # A process without concurrency cannot use times to send.
        has_none = self.limits.concurrency > 0 and limit == 0
        return 0.1 if has_none else min(1.0, max(0.1, members * self._interval(request), 2 * request.transit))

    def _next(self, request: LeaseRequest) -> float:
        """The next place: behind the last one, but no earlier than the burst permits."""
        earliest = self.clock() + request.transit - (self.limits.burst - 1) * self._interval(request)
        return max(self._not_before, earliest, self._line[-1].end if self._line else 0.0)

    def _book(self, name: str, request: LeaseRequest, members: int, limit: int) -> list[_Place]:
        if not self.limits.rate or (self.limits.concurrency and not limit):
            return []
        interval, period = self._interval(request), self._period(request, members, limit)
        arrives, places = self.clock() + request.transit, []
        # Not booked far ahead, so that a process that dies loses few, and another rate applies soon.
        if self._next(request) - arrives > 2 * period + interval:
            return []
        fair = max(1, int(period / interval / members))
        while len(places) < request.tokens and (len(places) < fair or self._next(request) <= arrives):
            at = self._next(request)
            places.append(_Place(at, at + interval, name))
            self._line.append(places[-1])
        self._line = self._line[-1_000:]
        return places


class MemoryLeases:
    """Keeps the contract of `QuotaLeases` for one process."""

    def __init__(self, quota: MemoryQuota, name: str) -> None:
        self._quota = quota
        self._name = name

    def lease_now(self, request: LeaseRequest) -> Lease:
        """A call that takes no time."""
        return self._quota.lease(self._name, request)

    def end_now(self, unused: int) -> None:
        """A call that takes no time."""
        self._quota.end(self._name, unused)

    async def lease(self, request: LeaseRequest) -> Lease:
        return self.lease_now(request)

    async def end(self, unused: int) -> None:
        self.end_now(unused)
