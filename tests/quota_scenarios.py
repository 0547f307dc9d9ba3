"""Random scenarios of processes that share a quota, in virtual time, as the processes themselves count their requests.

Processes join, are killed, and stop cleanly. Their demand changes. Their calls to the server of the quota take time, and single requests
and replies are lost. A scenario is determined by its seed.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import TypeVar

import msgspec
from fakes.virtual_time import VirtualTimeLoop, now
from fakes.workers import metrics

from ingest.domain.errors import NotSent, QueueUnavailable
from ingest.domain.fetch.quota import QuotaLimits
from ingest.upstream.quota.quota import FleetQuota, QuotaLeases
from ingest.upstream.session import utc_now

T = TypeVar("T")
# Seconds after which a lost call is given up, as in `ingest.queue.consume.queue_connections`.
CALL_TIMEOUT = 1.0
_LONGEST = 5.0
_DURATION = 30.0
_SLOTS = 60
_RATES = (0, 0, 0, 0, 0, 0, 1, 2, 5, 10, 50, 100, 250)
_CONCURRENCIES = (0, 1, 3, 5, 8, 12, 20, 50)


def seeds(usually: int) -> range:
    """The seeds of the scenarios to play, as many as the variable QUOTA_SCENARIOS says."""
    return range(int(os.environ.get("QUOTA_SCENARIOS", usually)))


class Network:
    """The way of one process to the server: a latency, some jitter, and the loss of single requests and replies.

    Args:
        lost: the share of calls that are lost, but never two in a row.
    """

    def __init__(self, random: Random, latency: float, jitter: float, lost: float) -> None:
        self._random = random
        self._latency = latency
        self._jitter = jitter
        self._lost = lost
        self._was_lost = False

    async def call(self, execute: Callable[[], T]) -> T:
        """Carry out a call on the server, or raise `QueueUnavailable` if the request or the reply is lost."""
        began_at = now()
        self._was_lost = not self._was_lost and self._random.random() < self._lost
        await self._travel()
        if self._was_lost:
            if self._random.random() < 0.5:
                execute()
            await asyncio.sleep(began_at + CALL_TIMEOUT - now())
            raise QueueUnavailable("the request or the reply is lost")
        reply = execute()
        await self._travel()
        return reply

    async def _travel(self) -> None:
        await asyncio.sleep(self._latency + self._random.uniform(0, self._jitter))


# Connects another process to the server of a quota in the running loop.
Connect = Callable[[Network], QuotaLeases]


class Seen(msgspec.Struct):
    """Requests that all processes have begun, those in flight, and the most that ever were."""

    begun: list[float] = []
    in_flight: int = 0
    peak: int = 0

    def busiest_second(self) -> int:
        """The most requests that have begun within any second."""
        times = sorted(self.begun)
        return max((index + 1 - bisect_right(times, at - 1.0 + 1e-6) for index, at in enumerate(times)), default=0)


class Process:
    """A process with slots, some of which send one request after another, until it stops or is killed."""

    def __init__(self, leases: QuotaLeases, limits: QuotaLimits, random: Random, seen: Seen) -> None:
        own = metrics()
        self._quota = FleetQuota(
            leases, limits, _LONGEST, own.rate_limit_wait, own.upstream_quota, utc_now, lambda _: None, clock=now
        )
        self._random = random
        self._seen = seen
        self._duration = random.choice((0.02, 0.1, 0.3, 1.5))
        self._active = 0
        self._changed = asyncio.Event()
        self._running = asyncio.create_task(self._quota.run())
        self._demanding = asyncio.create_task(self._demand())
        self._slots = [asyncio.create_task(self._send(slot)) for slot in range(_SLOTS)]

    async def stop(self) -> None:
        """Stop cleanly: the requests in flight end, and then the lease."""
        self._demanding.cancel()
        self._active = _SLOTS
        self._changed.set()
        self._quota.close()
        await asyncio.wait(self._slots)
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._quota.end()

    async def kill(self) -> None:
        """Drop everything."""
        tasks = [self._running, self._demanding, *self._slots]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _demand(self) -> None:
        """Change how many slots send requests: in steps, or in short bursts."""
        has_bursts, pause = self._random.random() < 0.5, self._random.choice((0.05, 0.3, 2.0, 8.0))
        while True:
            if has_bursts:
                await self._sends(self._random.choice((0, 1, 1, 1)), 3.0)
                await self._sends(self._random.choice((4, 6, 8, 10)), 0.1)
            else:
                await self._sends(self._random.choice((0, 1, 2, 5, 12, _SLOTS)), pause)

    async def _sends(self, slots: int, pause: float) -> None:
        self._active = slots
        self._changed.set()
        self._changed = asyncio.Event()
        await asyncio.sleep(self._random.expovariate(1 / pause))

    async def _send(self, slot: int) -> None:
        while True:
            while slot >= self._active:
                await self._changed.wait()
            try:
                await self._quota.acquire()
            except NotSent:
                return
            await self._request()

    async def _request(self) -> None:
        self._seen.begun.append(now())
        self._seen.in_flight += 1
        self._seen.peak = max(self._seen.peak, self._seen.in_flight)
        try:
            await asyncio.sleep(self._duration * self._random.uniform(0.5, 1.5))
        finally:
            self._seen.in_flight -= 1
            self._quota.release()


class Outcome(msgspec.Struct, frozen=True):
    """The limits of a scenario (0: none), and what its processes have sent."""

    seed: int
    rate: int
    busiest_second: int
    concurrency: int
    peak: int
    begun: int

    @property
    def keeps_the_quota(self) -> bool:
        """Whether no second had more requests than the rate, and no moment more than the concurrency."""
        return self.busiest_second <= (self.rate or self.begun) and self.peak <= (self.concurrency or self.begun)


def play(seed: int, serve: Callable[[QuotaLimits], Connect]) -> Outcome:
    """Play the scenario of a seed against a server with its limits."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_play(seed, serve))


async def _play(seed: int, serve: Callable[[QuotaLimits], Connect]) -> Outcome:
    random, seen, rate, concurrency = Random(seed), Seen(), 0, 0
    while not rate and not concurrency:
        rate, concurrency = random.choice(_RATES), random.choice(_CONCURRENCIES)
    limits = QuotaLimits(concurrency=concurrency)
    limits = limits.with_rate(rate) if rate else limits
    latency, jitter = random.choice((0.001, 0.02, 0.05)), random.choice((0.001, 0.005, 0.01))
    lost, connect = random.choice((0.0, 0.0, 0.02, 0.1)), serve(limits)

    def process() -> Process:
        return Process(connect(Network(random, latency * random.uniform(0.5, 1.5), jitter, lost)), limits, random, seen)

    running, stopping, end = [process() for _ in range(random.randint(2, 5))], [], now() + _DURATION
    while now() < end:
        await asyncio.sleep(random.uniform(0.05, 1.5))
        match random.choice(("join", "kill", "stop", "none", "none")):
            case "join" if len(running) < 8:
                running.append(process())
            case "kill" if running:
                await running.pop(random.randrange(len(running))).kill()
            case "stop" if running:
                stopping.append(asyncio.create_task(running.pop(random.randrange(len(running))).stop()))
    for each in running:
        await each.kill()
    for task in stopping:
        await task
    return Outcome(seed, rate, seen.busiest_second(), concurrency, seen.peak, len(seen.begun))
