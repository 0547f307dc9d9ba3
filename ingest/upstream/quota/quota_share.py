"""The share of one process in the quota of all processes: by its lease, or its safe share while there is no lease.

While the server of the leases is unavailable, each process continues with its safe share, which is the quota divided by the last known
number of processes (safe capacity, as in Doorman). Others may still have requests in flight by their last leases, so a process does not
exceed the concurrency of its own last lease until the longest request has ended. A process that has only been a member for a short time
has no safe share, because others may not have counted it.

Pure, without a clock or tasks.
"""

import math
import random
import sys
from collections.abc import Callable

from ingest.domain.fetch.quota import Lease, LeaseRequest, QuotaLimits
from ingest.upstream.quota.quota_demand import Demand
from ingest.upstream.quota.quota_schedule import Schedule

# How long a lease is valid after the call that requested it. The server counts it for longer.
LEASE = 3.0
# How often a lease that satisfies is renewed.
_RENEW = 1.0
# How often an unavailable server is tried. The server stops learning two seconds after the first process has reached it, or later.
_RETRY = (0.25, 0.75)
# How often a process without free concurrency requests some, in periods. With jitter, because otherwise some would never get any.
_LOOK = (0.75, 1.25)
# Times to send are requested this early, so that neither the round trip nor a busy event loop leaves a gap.
_LEAD = 0.06
_LEAD_SHARE = 0.6
# A time to send may be used this late, or as late as the next one comes. What lapses is lost: sent later, it would come together with
# what others send by then.
_LATE = 0.04
_LATEST = 0.1
# Orders are read ahead for this long, but always a few.
_READ_AHEAD = 10.0
_A_FEW = 8
# However little is left of the API's quota, a request a minute is no burden to it, and shows when it takes more again.
_SLOWEST = 1 / 60


class Share:
    """The share of one process.

    Attributes:
        in_flight: requests that are being sent.
        limit: requests that may be in flight by the last lease, or 0 without one.
        granted_rate: requests per second that were granted lately.

    Args:
        limits: of the fleet.
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
        self._lease = Lease()
        self._asked_at = self._valid_until = self._member_since = self._paused_until = -math.inf
        self._safe_since = math.inf
        self._retry_in: float | None = None
        self._looks_in = 0.0
        self._is_short = self._is_used = False
        self._slowest, self._slow_until = limits.rate, -math.inf
        self.limit = 0
        self.in_flight = 0
        self.granted_rate = 0.0

    # -- requests -------------------------------------------------------------------------------------------

    def delay(self, now: float) -> float:
        """Seconds until a request may begin: 0 or less for now, infinite until there is another lease or a request ends."""
        if now < self._paused_until:
            return self._paused_until - now
        if self._limits.concurrency and self.in_flight >= self.limit_at(now):
            return math.inf
        if self._limits.rate:
            return self._schedule.delay(now) if not self._is_safe() or self._is_trying(now) else math.inf
        return 0.0 if now < self._valid_until or (self._is_safe() and self._is_trying(now)) else math.inf

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
        if not self._is_safe():
            return self.limit if now < self._valid_until else 0
        if not self._is_trying(now):
            return 0
        fair = self._limits.concurrency // self._lease.members
        return min(self.limit, fair) if now < self._safe_since + self._longest else fair

    def read_ahead(self) -> int:
        """How many orders to hold, at most: as many as can be sent in a while."""
        if not self._limits.rate:
            return sys.maxsize
        return max(_A_FEW, math.ceil(self._limits.rate / self._lease.members * _READ_AHEAD))

    def told(self, rate: float, seconds: float, now: float) -> None:
        """By the API's headers, the rest of its quota allows this rate until it is full again."""
        if rate < self._limits.rate:
            self._slowest, self._slow_until = max(rate, min(_SLOWEST, self._limits.rate)), now + seconds
        elif self._slowest < self._limits.rate:
            # The quota is full again, so that earlier headers no longer apply.
            self._slowest, self._slow_until = self._limits.rate, now + LEASE

    # -- leases ---------------------------------------------------------------------------------------------

    def due(self, now: float, waiting: int) -> float:
        """When to call next, or infinite while there is nothing to request."""
        if not waiting and not self.in_flight:
            return math.inf
        if self._retry_in is not None:
            return self._asked_at + self._retry_in
        earliest = self._asked_at + self._lease.renew_in
        if self._lease.is_learning:
            return earliest
        due = self._asked_at + _RENEW
        if waiting and self._is_limited(now):
            due = self._asked_at + self._looks_in
        elif self._limits.rate and (waiting or self._demand.expected(self._lease.period) >= 1):
            due = min(due, self._next_times(now, waiting))
        return max(earliest, due)

    def request(self, now: float, waiting: int) -> LeaseRequest:
        """The request for a lease now, given how many requests wait."""
        self._demand.learn(now, self._lease.period, self.in_flight + waiting)
        tokens = 0.0
        if self._limits.rate and not self._is_safe():
            wanted = self._demand.expected(self._lease.period) + self._fitting(now, waiting)
            tokens = max(0.0, wanted - self._schedule.left(now))
        slow_for = max(0.0, self._slow_until - now)
        claim = self.limit_at(now)
        self._asked_at = now
        return LeaseRequest(
            tokens=math.ceil(tokens),
            concurrency=self._demand.peak,
            in_flight=self.in_flight,
            claim=claim,
            is_back=self._retry_in is not None,
            members=self._lease.members if self._valid_until > -math.inf else 0,
            is_unused=waiting > 0 and not self._is_used,
            slowest=self._slowest if slow_for else 0.0,
            slow_for=slow_for,
        )

    def granted(self, request: LeaseRequest, lease: Lease, waiting: int, now: float) -> None:
        """The server has answered a request, given how many requests wait."""
        self._retry_in = None
        if lease.paused:
            self._paused_until = now + lease.paused
            self._schedule.clear()
        if lease.is_learning:
            # Continue as if the server were unavailable, but call it at the time that it returned.
            self._keep_safe(now)
            self._lease = Lease(
                members=self._lease.members, period=lease.period, renew_in=lease.renew_in, is_learning=True
            )
            return
        if self._is_safe():
            self._safe_since = math.inf
            self._schedule.clear()
        elif self._asked_at > self._valid_until:
            self._member_since = self._asked_at
        self._count(lease.tokens, now)
        self._valid_until = self._asked_at + LEASE
        self._lease, self.limit = lease, lease.limit
        self._looks_in = lease.period * self._draw(*_LOOK)
        self._is_short = lease.tokens < request.tokens
        self._is_used = lease.limit == 0
        self._add(lease, min(self._fitting(now, waiting), lease.tokens), now)

    def failed(self, now: float) -> None:
        """The server cannot be used."""
        self._retry_in = self._draw(*_RETRY)
        self._keep_safe(now)

    def take_unused(self) -> int:
        """Times to send that will not be used any more."""
        self._schedule.take_unused()
        self._schedule.clear()
        return self._schedule.take_unused()

    # -- without a lease ------------------------------------------------------------------------------------

    def _is_safe(self) -> bool:
        return self._safe_since < math.inf

    def _is_trying(self, now: float) -> bool:
        """Whether the server was tried lately: a process without requests does not, and its safe share ends."""
        return now < self._asked_at + LEASE

    def _keep_safe(self, now: float) -> None:
        # All others have called since this process became a member, or have left.
        is_known = self._valid_until - LEASE - self._member_since >= LEASE
        if self._is_safe() or now > self._valid_until or not is_known:
            return
        self._safe_since = now
        if self._limits.rate:
            self.granted_rate = self._limits.rate / self._lease.members
            spacing = 1 / self.granted_rate
            # Others use up their leases for about a period, and processes should not begin in step.
            at = max(now + self._lease.period, self._schedule.end()) + self._draw(0.5, 1.0) * spacing
            self._schedule.add(at, math.inf, spacing, _validity(spacing))

    # -- with one -------------------------------------------------------------------------------------------

    def _is_limited(self, now: float) -> bool:
        return bool(self._limits.concurrency) and self.in_flight >= self.limit_at(now)

    def _fitting(self, now: float, waiting: int) -> int:
        """How many waiting requests may begin by their concurrency. Without any, one, which may be granted next."""
        if not self._limits.concurrency:
            return waiting
        return max(0, min(waiting, max(1, self.limit_at(now)) - self.in_flight))

    def _next_times(self, now: float, waiting: int) -> float:
        """When to request more times to send: shortly before the last, or immediately if the last request was granted completely."""
        if self._is_short or self._fitting(now, waiting) <= self._schedule.left(now):
            return self._schedule.end() - min(_LEAD, _LEAD_SHARE * self._lease.period)
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
        passed = min(10.0, max(1e-3, now - (self._valid_until - LEASE)))
        self.granted_rate += (1 - math.exp(-passed)) * (tokens / passed - self.granted_rate)


def _validity(spacing: float) -> float:
    return max(_LATE, min(spacing, _LATEST))
