"""The share of one process in the quota of all processes: how many requests it may send, and when it calls the server of the leases.

Pure, without a clock or tasks.
"""

import math
import random
import sys
from collections.abc import Callable

from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.upstream.quota.quota_clock import ServerClock
from ingest.upstream.quota.quota_lease import (
    Leased,
    Right,
    Safe,
    claimed,
    concurrency,
    is_valid,
    renewed,
    without_server,
)
from ingest.upstream.quota.quota_rate import QuotaRate
from ingest.upstream.quota.quota_schedule import Schedule

# How often a lease that satisfies is renewed.
_RENEW = 1.0
# How often an unavailable server is tried. The server stops learning two seconds after the first process has reached it, or later.
_RETRY = (0.25, 0.75)
# Single calls may be lost, so that the last lease is used until this many in a row have failed. They are tried sooner.
_LOST = 2
_RETRY_SOON = (0.05, 0.15)
# How often a process without free concurrency requests some, in periods. With jitter, because otherwise some would never get any.
_LOOK = (0.75, 1.25)
# Times to send are requested this early, and earlier by the time of a call, so that a busy event loop leaves no gap.
_LEAD = 0.03
_LEAD_SHARE = 0.6
# A leased time to send may be used this late. `QuotaLimits.with_rate` leaves as much room again for the difference of clocks. A later
# request would come together with the requests of other processes, so that the time lapses.
_LATE = 0.01
# A time of a safe share may be used this late, or until the next one comes.
_SAFE_LATE = 0.04
_SAFE_LATEST = 0.1
# Orders are read ahead for this long, but always a few.
_READ_AHEAD = 10.0
_A_FEW = 8


class Share:
    """The requests that one process may send.

    Attributes:
        in_flight: requests that are being sent.
        granted_rate: requests per second that were granted lately.
        rate: the rate over all processes.

    Args:
        longest: seconds after which a request has ended.
        draw: a uniform random number between its arguments, so that processes do not call in step.
    """

    def __init__(
        self, limits: QuotaLimits, longest: float, *, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._limits = limits
        self._longest = longest
        self._draw = draw
        self._schedule = Schedule()
        self._clock = ServerClock()
        # The most requests that recently waited or were in flight.
        self._wanted = 0
        self._right: Right = Leased()
        # The response to the last call, or None if it failed.
        self._response: Lease | None = Lease()
        self._called_at = self._paused_until = -math.inf
        # How many of the last calls have failed, and when the first of them was sent.
        self._failures = 0
        self._failing_since = -math.inf
        # The requests in flight that the server counts.
        self._counted = 0
        self._next_call_in = 0.0
        self._is_used = False
        self.rate = QuotaRate(limits.rate, has_cost=bool(limits.cost))
        self.in_flight = 0
        self.granted_rate = 0.0

    def delay(self, now: float) -> float:
        """Seconds until a request may begin: 0 or less for now, infinite until there is another lease or a request ends."""
        if now < self._paused_until:
            return self._paused_until - now
        if (
            self._is_limited(now)
            or (self.in_flight and not self.rate.is_known)
            or not is_valid(self._right, self._called_at, now)
        ):
            return math.inf
        return self._schedule.delay(now) if self._limits.rate else 0.0

    def begin(self) -> None:
        """A request begins, as `delay` permits."""
        self.in_flight += 1
        self._is_used = True
        if self._limits.rate:
            self._schedule.take()

    def end(self) -> None:
        """A request has ended."""
        self.in_flight -= 1

    def limit_at(self, now: float) -> int:
        """How many requests may be in flight."""
        if not is_valid(self._right, self._called_at, now):
            return 0
        return concurrency(self._right, self._limits.concurrency, self._longest, now)

    @property
    def is_without_server(self) -> bool:
        """Whether the server is unavailable. A single call may also be lost."""
        return self._failures > _LOST

    def read_ahead(self) -> int:
        """How many orders to hold, at most: as many as can be sent in a while."""
        if not self.rate.now:
            return sys.maxsize
        return max(_A_FEW, math.ceil(self.rate.now / self._right.lease.members * _READ_AHEAD))

    def due(self, now: float, waiting: int) -> float:
        """When to call next, or infinite while there is nothing to request or to give up."""
        # A safe share ends with the first reply, even if there is no request, because the others divide the quota without it.
        is_counted = isinstance(self._right, Safe) or (self._counted and is_valid(self._right, self._called_at, now))
        if not waiting and not self.in_flight and not is_counted:
            return math.inf
        if (response := self._response) is None:
            return self._called_at + self._next_call_in
        earliest = self._called_at + response.renew_in
        if response.is_learning:
            return earliest
        due = self._called_at + _RENEW
        if (waiting and self._is_limited(now)) or self._counted > max(self.limit_at(now), self.in_flight):
            due = self._called_at + self._next_call_in
        elif self._limits.rate and waiting:
            due = min(due, self._next_times())
        return max(earliest, due)

    def request(self, now: float, waiting: int) -> LeaseRequest:
        """The request for a lease now, given how many requests wait. It gives up whatever it does not claim."""
        active = self.in_flight + waiting
        self._wanted = max(active, self._wanted // 2) if active else 0
        tokens = 0.0
        if self._limits.rate and isinstance(self._right, Leased):
            tokens = self._fitting(now, waiting) - self._schedule.left(now)
        slowest, slow_for = self.rate.slowest(now)
        claim = self._claim(now, is_unused=(is_unused := waiting > 0 and not self._is_used))
        self._called_at = now
        if not self._failures:
            self._failing_since = now
        return LeaseRequest(
            tokens=max(0, math.ceil(tokens)),
            rate=self.rate.now,
            concurrency=self._wanted,
            claim=claim,
            transit=self._clock.transit,
            is_back=self.is_without_server,
            members=0 if self._right == Leased() else self._right.lease.members,
            is_unused=is_unused,
            slowest=slowest,
            slow_for=slow_for,
        )

    def granted(self, request: LeaseRequest, lease: Lease, now: float) -> None:
        """The server has answered a request."""
        self._response = lease
        self._failures = 0
        self._clock.learn(self._called_at, now, lease.time)
        if lease.paused:
            self._paused_until = now + lease.paused
            self._schedule.clear()
        if lease.is_learning:
            # Continue as if the server were unavailable, but call it at the time that it returned.
            self._lose_server(self._called_at, now)
            return
        if isinstance(self._right, Safe):
            self._schedule.clear()
        self._count(lease.tokens, now)
        self._right = renewed(self._right, lease, self._called_at)
        self._counted = max(request.claim, lease.limit) if self._limits.concurrency else 0
        self._next_call_in = lease.period * self._draw(*_LOOK)
        self._is_used = lease.limit == 0
        self._add(lease, request.transit)

    def failed(self, now: float) -> None:
        """The server cannot be used."""
        self._response = None
        self._failures += 1
        self._next_call_in = self._draw(*(_RETRY if self.is_without_server else _RETRY_SOON))
        if self.is_without_server:
            self._lose_server(self._failing_since, now)

    def leave(self) -> int:
        """Give up the rest of the lease, and return how many of its last times to send were not used."""
        return self._schedule.clear()

    def _claim(self, now: float, *, is_unused: bool) -> int:
        """How many requests may be in flight until the reply."""
        limit, right = self.limit_at(now), self._right
        if isinstance(right, Leased) and self._limits.concurrency:
            # With fewer places than processes, a turn ends when it is used.
            is_over = self._limits.concurrency < right.lease.members and not is_unused
            limit = 0 if is_over else min(limit, self._wanted)
            self._right = claimed(right, max(limit, self.in_flight))
        return max(limit, self.in_flight)

    def _lose_server(self, since: float, now: float) -> None:
        right = without_server(self._right, since, now)
        if right is self._right:
            return
        self._right = right
        if self._limits.rate:
            self.granted_rate = self.rate.now / self._right.lease.members
            spacing = 1 / self.granted_rate
            # Others use up their leases for about a period, and processes should not begin in step.
            at = max(now + self._right.lease.period, self._schedule.end()) + self._draw(0.5, 1.0) * spacing
            self._schedule.add(at, math.inf, spacing, max(_SAFE_LATE, min(spacing, _SAFE_LATEST)))

    def _is_limited(self, now: float) -> bool:
        return bool(self._limits.concurrency) and self.in_flight >= self.limit_at(now)

    def _fitting(self, now: float, waiting: int) -> int:
        """How many waiting requests may begin by their concurrency. Without any, one, which may be granted next."""
        if not self._limits.concurrency:
            return waiting
        return max(0, min(waiting, max(1, self.limit_at(now)) - self.in_flight))

    def _next_times(self) -> float:
        """When to request more times to send: shortly before the last."""
        return self._schedule.end() - min(_LEAD, _LEAD_SHARE * self._right.lease.period) - self._clock.transit

    def _add(self, lease: Lease, transit: float) -> None:
        """Add the leased times to send. Times before the reply could arrive are a saved burst, which may begin together."""
        called_at, saved = self._clock.local(lease.time), 0
        if lease.spacing and lease.starts_in <= transit:
            saved = min(lease.tokens, math.floor((transit - lease.starts_in) / lease.spacing) + 1)
            self._schedule.add(called_at + transit, saved, 0.0, _LATE)
        at = called_at + lease.starts_in + saved * lease.spacing
        self._schedule.add(at, lease.tokens - saved, lease.spacing, _LATE)

    def _count(self, tokens: int, now: float) -> None:
        right = self._right
        passed = min(10.0, max(1e-3, now - (right.asked_at if isinstance(right, Leased) else right.since)))
        self.granted_rate += (1 - math.exp(-passed)) * (tokens / passed - self.granted_rate)
