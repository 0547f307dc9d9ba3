"""The share of one process in the quota of all processes: how many requests it may send, and when it calls the server of the leases.

Pure, without a clock or tasks.
"""

import math
import random
import sys
from collections.abc import Callable

from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.upstream.quota.quota_lease import VALID, Leased, Right, Safe, concurrency, is_valid, renewed, without_server
from ingest.upstream.quota.quota_schedule import Demand, Schedule

# How often a lease that satisfies is renewed.
_RENEW = 1.0
# How often an unavailable server is tried. The server stops learning two seconds after the first process has reached it, or later.
_RETRY = (0.25, 0.75)
# How often a process without free concurrency requests some, in periods. With jitter, because otherwise some would never get any.
_LOOK = (0.75, 1.25)
# Times to send are requested this early, so that neither the round trip nor a busy event loop leaves a gap.
_LEAD = 0.06
_LEAD_SHARE = 0.6
# A time to send may be used this late, or until the next one comes. A later request would come together with the requests of other
# processes, so that the time lapses.
_LATE = 0.04
_LATEST = 0.1
# Orders are read ahead for this long, but always a few.
_READ_AHEAD = 10.0
_A_FEW = 8
# With hardly anything left of the API's quota, a request a minute is no burden, and shows when the API accepts more again.
_SLOWEST = 1 / 60


class Share:
    """The requests that one process may send.

    Attributes:
        in_flight: requests that are being sent.
        granted_rate: requests per second that were granted lately.

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
        self._demand = Demand()
        self._right: Right = Leased()
        # The response to the last call, or None if it failed.
        self._response: Lease | None = Lease()
        self._called_at = self._paused_until = -math.inf
        self._next_call_in = 0.0
        self._is_short = self._is_used = False
        self._rate = self._slowest = limits.rate
        self._slow_until = -math.inf
        # Until a response has shown what requests cost, one is sent at a time.
        self._is_cost_known = not limits.cost
        self.in_flight = 0
        self.granted_rate = 0.0

    # -- requests -------------------------------------------------------------------------------------------

    def delay(self, now: float) -> float:
        """Seconds until a request may begin: 0 or less for now, infinite until there is another lease or a request ends."""
        if now < self._paused_until:
            return self._paused_until - now
        if (
            self._is_limited(now)
            or (self.in_flight and not self._is_cost_known)
            or not is_valid(self._right, self._called_at, now)
        ):
            return math.inf
        return self._schedule.delay(now) if self._limits.rate else 0.0

    def begin(self) -> None:
        """A request begins, as `delay` permits."""
        self.in_flight += 1
        self._is_used = True
        self._demand.count()
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

    def read_ahead(self) -> int:
        """How many orders to hold, at most: as many as can be sent in a while."""
        if not self._rate:
            return sys.maxsize
        return max(_A_FEW, math.ceil(self._rate / self._right.lease.members * _READ_AHEAD))

    def adapt(self, rate: float) -> None:
        """By the cost of requests, their quota allows this rate over all processes."""
        self._rate, self._is_cost_known = rate, True

    def slow_down(self, rate: float, seconds: float, now: float) -> None:
        """By the API's headers, the rest of its quota allows this rate until it is full again."""
        if rate < self._rate:
            self._slowest, self._slow_until = max(rate, min(_SLOWEST, self._rate)), now + seconds
        elif self._slowest < self._rate:
            # The quota is full again, so that earlier headers no longer apply.
            self._slowest, self._slow_until = self._rate, now + VALID

    # -- calls of the server --------------------------------------------------------------------------------

    def due(self, now: float, waiting: int) -> float:
        """When to call next, or infinite while there is nothing to request."""
        if not waiting and not self.in_flight:
            return math.inf
        response = self._response
        if response is None:
            return self._called_at + self._next_call_in
        earliest = self._called_at + response.renew_in
        if response.is_learning:
            return earliest
        due = self._called_at + _RENEW
        if waiting and self._is_limited(now):
            due = self._called_at + self._next_call_in
        elif self._limits.rate and (waiting or self._demand.expected(response.period) >= 1):
            due = min(due, self._next_times(now, waiting))
        return max(earliest, due)

    def request(self, now: float, waiting: int) -> LeaseRequest:
        """The request for a lease now, given how many requests wait."""
        period = self._right.lease.period
        self._demand.learn(now, period, self.in_flight + waiting)
        tokens = 0.0
        if self._limits.rate and isinstance(self._right, Leased):
            tokens = self._expected(period) + self._fitting(now, waiting) - self._schedule.left(now)
        slow_for = max(0.0, self._slow_until - now)
        claim = self.limit_at(now)
        self._called_at = now
        return LeaseRequest(
            tokens=max(0, math.ceil(tokens)),
            rate=self._rate,
            concurrency=self._demand.peak,
            in_flight=self.in_flight,
            claim=claim,
            is_back=self._response is None,
            members=0 if self._right == Leased() else self._right.lease.members,
            is_unused=waiting > 0 and not self._is_used,
            slowest=self._slowest if slow_for else 0.0,
            slow_for=slow_for,
        )

    def granted(self, request: LeaseRequest, lease: Lease, waiting: int, now: float) -> None:
        """The server has answered a request, given how many requests wait."""
        self._response = lease
        if lease.paused:
            self._paused_until = now + lease.paused
            self._schedule.clear()
        if lease.is_learning:
            # Continue as if the server were unavailable, but call it at the time that it returned.
            self._lose_server(now)
            return
        if isinstance(self._right, Safe):
            self._schedule.clear()
        self._count(lease.tokens, now)
        self._right = renewed(self._right, lease, self._called_at)
        self._next_call_in = lease.period * self._draw(*_LOOK)
        self._is_short = lease.tokens < request.tokens
        self._is_used = lease.limit == 0
        self._add(lease, min(self._fitting(now, waiting), lease.tokens), now)

    def failed(self, now: float) -> None:
        """The server cannot be used."""
        self._response = None
        self._next_call_in = self._draw(*_RETRY)
        self._lose_server(now)

    def leave(self) -> int:
        """Give up the rest of the lease, and return how many times to send were not used."""
        return self._schedule.clear()

    def _lose_server(self, now: float) -> None:
        right = without_server(self._right, now)
        if right is self._right:
            return
        self._right = right
        if self._limits.rate:
            self.granted_rate = self._rate / self._right.lease.members
            spacing = 1 / self.granted_rate
            # Others use up their leases for about a period, and processes should not begin in step.
            at = max(now + self._right.lease.period, self._schedule.end()) + self._draw(0.5, 1.0) * spacing
            self._schedule.add(at, math.inf, spacing, _validity(spacing))

    # -- times to send --------------------------------------------------------------------------------------

    def _is_limited(self, now: float) -> bool:
        return bool(self._limits.concurrency) and self.in_flight >= self.limit_at(now)

    def _expected(self, period: float) -> float:
        """Requests to book in advance. At a low rate, a time that is booked but not used would be missed for long."""
        return self._demand.expected(period) if self._rate >= 1 else 0.0

    def _fitting(self, now: float, waiting: int) -> int:
        """How many waiting requests may begin by their concurrency. Without any, one, which may be granted next."""
        if not self._limits.concurrency:
            return waiting
        return max(0, min(waiting, max(1, self.limit_at(now)) - self.in_flight))

    def _next_times(self, now: float, waiting: int) -> float:
        """When to request more times to send: shortly before the last, or immediately if the last request was granted completely."""
        if self._is_short or self._fitting(now, waiting) <= self._schedule.left(now):
            return self._schedule.end() - min(_LEAD, _LEAD_SHARE * self._right.lease.period)
        return -math.inf

    def _add(self, lease: Lease, waiting: int, now: float) -> None:
        """Add times to send, first for waiting requests, then for expected ones over the rest of the period.

        Times in the past are a saved burst, and as many requests may begin immediately.
        """
        at, spacing = now + lease.starts_in, lease.spacing
        expected = lease.tokens - waiting
        if spacing and lease.starts_in <= 0:
            saved = min(waiting, math.floor(-lease.starts_in / spacing) + 1)
            self._schedule.add(now, saved, 0.0, _validity(0.0))
            at += saved * spacing
            waiting -= saved
        self._schedule.add(max(now, at), waiting, spacing, _validity(spacing))
        if expected:
            at += waiting * spacing
            spacing = max(spacing, (lease.period - waiting * spacing) / expected)
            self._schedule.add(max(now, at), expected, spacing, _validity(spacing))

    def _count(self, tokens: int, now: float) -> None:
        right = self._right
        passed = min(10.0, max(1e-3, now - (right.asked_at if isinstance(right, Leased) else right.since)))
        self.granted_rate += (1 - math.exp(-passed)) * (tokens / passed - self.granted_rate)


def _validity(spacing: float) -> float:
    return max(_LATE, min(spacing, _LATEST))
