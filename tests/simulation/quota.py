"""The quota of one source: each process takes its turns as in production, and the API counts the requests of all of them."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from fakes.virtual_time import now
from fakes.workers import metrics

from ingest.domain.errors import NotSent
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.fetch.result import Failed, Fetched
from ingest.upstream.quota.quota import FleetQuota, QuotaLeases
from ingest.upstream.session import utc_now
from simulation.story import Story

LONGEST = 30.0
"""Seconds after which a request has ended."""


class CountedRequests:
    """The requests of all processes at the API.

    Requests arrive closer together than they were sent, by the time in the network. Processes that have lost a call do not know each
    other's times, so that a second may contain one request more for each.

    Args:
        story: the quota and the network.
    """

    def __init__(self, story: Story) -> None:
        self._rate = story.rate and story.rate + story.processes
        self._concurrency = story.in_progress
        self._window = 1.0 - story.latency
        self._begun: deque[float] = deque()
        self._in_progress: dict[int, str] = {}
        self._numbers = count()
        self.violations: list[str] = []

    def end_of(self, process: str) -> None:
        """The requests of a process have ended, because it was killed."""
        self._in_progress = {number: name for number, name in self._in_progress.items() if name != process}

    @contextmanager
    def counted(self, process: str) -> Iterator[None]:
        """Count a request of a process while the block runs."""
        at, number = now(), next(self._numbers)
        self._begun.append(at)
        while self._begun[0] <= at - self._window:
            self._begun.popleft()
        self._in_progress[number] = process
        if self._rate and len(self._begun) > self._rate:
            self.violations.append(f"{len(self._begun)} requests within {self._window:g} s")
        if self._concurrency and len(self._in_progress) > self._concurrency:
            self.violations.append(f"{len(self._in_progress)} concurrent requests")
        try:
            yield
        finally:
            self._in_progress.pop(number, None)


class WithinQuota:
    """An API whose requests take their turns.

    Args:
        upstream: the API.
        quota: the part of one process.
    """

    def __init__(self, upstream: Any, quota: FleetQuota) -> None:
        self._upstream = upstream
        self._quota = quota

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Send a request in its turn."""
        try:
            await self._quota.acquire()
        except NotSent as fault:
            return Failed(fault, Exchange((request,), now()))
        try:
            return await self._upstream.fetch(request)
        finally:
            self._quota.release()

    fetch_once = fetch


def part_of(limits: QuotaLimits, leases: QuotaLeases) -> FleetQuota:
    """The part of one process. `leases` is its way to the server."""
    own = metrics()
    return FleetQuota(
        leases, limits, LONGEST, own.rate_limit_wait, own.upstream_quota, utc_now, lambda _: None, clock=now
    )
