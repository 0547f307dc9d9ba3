"""Processes that share a quota, in virtual time: what all of them send together, whatever happens to one or to the server."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fakes.leases import MemoryQuota
from fakes.virtual_time import now, until, virtual_time
from fakes.workers import metrics

from ingest.domain.errors import NotSent
from ingest.domain.fetch.quota import QuotaLimits
from ingest.telemetry.metrics import UPSTREAM_QUOTA, WorkerMetrics, worker_shared_metrics
from ingest.upstream.quota.quota import FleetQuota
from ingest.upstream.session import utc_now

LONGEST = 5.0


class Fleet:
    """Processes that send as much as they may, and when each request was sent."""

    def __init__(self, limits: QuotaLimits, latency: float = 0.1) -> None:
        self.limits = limits
        self.server = MemoryQuota(limits, now)
        self.latency = latency
        self.sent: list[tuple[float, str]] = []
        self.paused: list[float] = []
        self.in_flight = 0
        self.peak = 0

    @asynccontextmanager
    async def process(
        self, name: str, slots: int = 50, measuring: WorkerMetrics | None = None
    ) -> AsyncIterator[FleetQuota]:
        """A process with so many slots, each of which sends one request after another."""
        own = measuring or metrics()
        quota = FleetQuota(
            self.server.member(name),
            self.limits,
            LONGEST,
            own.rate_limit_wait,
            own.upstream_quota,
            utc_now,
            self.paused.append,
            clock=now,
        )
        tasks = [asyncio.create_task(quota.run())]
        tasks += [asyncio.create_task(self.send(name, quota)) for _ in range(slots)]
        try:
            yield quota
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @asynccontextmanager
    async def processes(self, *names: str) -> AsyncIterator[None]:
        if not names:
            yield
            return
        async with self.process(names[0]), self.processes(*names[1:]):
            yield

    async def send(self, name: str, quota: FleetQuota) -> None:
        while True:
            await quota.acquire()
            self.sent.append((now(), name))
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            try:
                await asyncio.sleep(self.latency)
            finally:
                self.in_flight -= 1
                quota.release()

    def busiest_second(self) -> int:
        """The most requests within any second."""
        recent: deque[float] = deque()
        most = 0
        for at, _ in self.sent:
            recent.append(at)
            while recent[0] <= at - 1.0:
                recent.popleft()
            most = max(most, len(recent))
        return most

    def count(self, since: float, *names: str) -> int:
        return sum(1 for at, name in self.sent if at >= since and (not names or name in names))


@virtual_time
async def test_all_together_send_the_rate_and_within_no_second_more() -> None:
    fleet = Fleet(QuotaLimits(rate=198.0, burst=2))
    started = now()

    async with fleet.processes("a", "b", "c", "d"):
        await asyncio.sleep(10.0)

    assert fleet.busiest_second() <= 206
    assert fleet.count(started) >= 190 * 10
    for name in "abcd":
        assert fleet.count(started, name) == pytest.approx(198 * 10 / 4, rel=0.1)


@virtual_time
async def test_what_a_dead_process_leaves_goes_to_the_others_at_once() -> None:
    fleet = Fleet(QuotaLimits(rate=198.0, burst=2))

    async with fleet.processes("a", "b"):
        async with fleet.processes("c", "d"):
            await asyncio.sleep(5.0)
        died_at = now()
        await asyncio.sleep(5.0)

    assert fleet.count(died_at) >= 190 * 5
    assert fleet.busiest_second() <= 208


@virtual_time
async def test_two_requests_a_second_are_evenly_two_requests_a_second() -> None:
    fleet = Fleet(QuotaLimits(rate=2.0))
    started = now()

    async with fleet.processes("a", "b", "c", "d"):
        await asyncio.sleep(60.0)

    assert fleet.busiest_second() <= 3
    assert fleet.count(started) == pytest.approx(120, abs=6)


@virtual_time
async def test_while_the_server_is_unavailable_each_goes_on_with_its_safe_share() -> None:
    fleet = Fleet(QuotaLimits(rate=200.0))

    async with fleet.processes("a", "b", "c", "d"):
        await asyncio.sleep(5.0)
        fleet.server.is_available = False
        down_at = now()
        await asyncio.sleep(60.0)
        during = fleet.count(down_at)
        fleet.server.is_available = True
        fleet.server.lose()
        back_at = now()
        await asyncio.sleep(10.0)

    assert during == pytest.approx(200 * 60, rel=0.03)
    assert fleet.count(back_at) == pytest.approx(200 * 10, rel=0.05)
    assert fleet.busiest_second() <= 212


@virtual_time
async def test_a_process_that_nobody_knows_yet_sends_nothing_while_the_server_is_unavailable() -> None:
    fleet = Fleet(QuotaLimits(rate=200.0, concurrency=10))
    fleet.server.is_available = False

    async with fleet.process("new"):
        await asyncio.sleep(30.0)
        assert fleet.sent == []
        fleet.server.is_available = True
        await until(lambda: fleet.sent, within=4.0)


@virtual_time
async def test_the_server_is_asked_twenty_times_a_second_by_each_process_and_by_an_idle_one_not_at_all() -> None:
    fleet = Fleet(QuotaLimits(rate=1_000.0))

    async with fleet.processes("a", "b", "c", "d"), fleet.process("idle", slots=0):
        await asyncio.sleep(1.0)
        before = fleet.server.calls
        await asyncio.sleep(10.0)

    assert fleet.server.calls - before <= 20 * 10 * 4 * 1.1


@virtual_time
async def test_no_more_requests_than_the_quota_are_in_flight_also_without_a_server() -> None:
    fleet = Fleet(QuotaLimits(concurrency=20), latency=1.0)

    async with fleet.processes("a", "b"):
        await asyncio.sleep(8.0)
        async with fleet.processes("c"):
            await asyncio.sleep(8.0)
            fleet.server.is_available = False
            await asyncio.sleep(20.0)
            fleet.server.is_available = True
            await asyncio.sleep(10.0)

    assert fleet.peak <= 20
    assert fleet.count(0.0) >= 0.7 * 20 * 40


@virtual_time
async def test_a_process_without_requests_at_the_end_of_an_outage_does_not_use_its_safe_share_later() -> None:
    fleet = Fleet(QuotaLimits(concurrency=3), latency=2.0)

    async with fleet.processes("a", "b"), fleet.process("idle", slots=0) as quota:
        sending = asyncio.create_task(fleet.send("idle", quota))
        await asyncio.sleep(20.0)
        fleet.server.is_available = False
        await asyncio.sleep(5.0)
        sending.cancel()
        await asyncio.sleep(5.0)
        fleet.server.is_available = True
        await asyncio.sleep(10.0)
        idle_until = now()
        sending = asyncio.create_task(fleet.send("idle", quota))
        await asyncio.sleep(20.0)
        sending.cancel()

    assert fleet.count(idle_until, "idle")
    assert fleet.peak <= 3


@virtual_time
async def test_with_a_rate_and_fewer_places_than_processes_all_send_and_come_near_to_the_rate() -> None:
    fleet = Fleet(QuotaLimits(rate=5.0, concurrency=1))
    started = now()

    async with fleet.processes("a", "b", "c"):
        await asyncio.sleep(60.0)

    assert fleet.peak == 1
    assert fleet.count(started) >= 0.8 * 5 * 60
    for name in "abc":
        assert fleet.count(started, name) >= 60


@virtual_time
async def test_after_a_time_with_fewer_requests_as_many_as_the_burst_are_sent_at_once() -> None:
    fleet = Fleet(QuotaLimits(rate=2.0, burst=40))

    async with fleet.process("a", slots=0) as quota:
        await quota.acquire()
        quota.release()
        await asyncio.sleep(30.0)
        sent = [asyncio.create_task(quota.acquire()) for _ in range(100)]
        await asyncio.sleep(0.5)
        at_once = sum(task.done() for task in sent)
        await asyncio.sleep(5.0)
        later = sum(task.done() for task in sent)
        quota.close()
        await asyncio.wait(sent)

    assert at_once == pytest.approx(40, abs=2)
    assert later - at_once == pytest.approx(2 * 5, abs=2)


@virtual_time
async def test_a_pause_of_the_fleet_stops_all_and_ends() -> None:
    fleet = Fleet(QuotaLimits(rate=100.0))

    async with fleet.processes("a", "b"):
        await asyncio.sleep(3.0)
        fleet.server.paused_until = now() + 30.0
        asked_at = now()
        await asyncio.sleep(29.0)
        paused = [at for at, _ in fleet.sent if at > asked_at + 1.0]
        await asyncio.sleep(5.0)

    assert paused == []
    assert fleet.count(asked_at + 30.0) > 200


@virtual_time
async def test_what_the_headers_say_slows_all_until_the_quota_is_full_again() -> None:
    fleet = Fleet(QuotaLimits(rate=100.0))

    async with fleet.process("a") as told, fleet.process("b"):
        await asyncio.sleep(3.0)
        told.observe(200, {"RateLimit": '"default";r=100;t=10'})
        slow_at = now()
        await asyncio.sleep(10.0)
        slow = fleet.count(slow_at)
        await asyncio.sleep(5.0)

    assert slow == pytest.approx(100, abs=30)
    assert fleet.count(slow_at + 10.0) == pytest.approx(500, abs=30)


@virtual_time
async def test_headers_that_leave_next_to_nothing_leave_a_request_a_minute() -> None:
    """Otherwise no response would show that the API takes more again, and its headers may be wrong."""
    fleet = Fleet(QuotaLimits(rate=100.0))

    async with fleet.process("a", slots=1) as quota:
        await asyncio.sleep(3.0)
        quota.observe(200, {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "86400"})
        slow_at = now()
        await asyncio.sleep(600.0)
        slow = fleet.count(slow_at)
        quota.observe(200, {"X-RateLimit-Remaining": "5000", "X-RateLimit-Reset": "50"})
        await asyncio.sleep(180.0)

    assert slow == pytest.approx(10, abs=3)
    assert fleet.count(slow_at + 600.0 + 130.0) > 400, "two minutes may have been booked ahead"


@virtual_time
async def test_a_quota_that_is_used_up_pauses_by_the_headers() -> None:
    fleet = Fleet(QuotaLimits(rate=100.0))

    async with fleet.process("a", slots=0) as quota:
        quota.observe(200, {"RateLimit": "limit=100, remaining=0, reset=7"})
        quota.observe(200, {"X-RateLimit-Remaining": "nonsense"})

    assert fleet.paused == [7.0]


def keeps_the_limit_of_amazons_list(times: list[float]) -> bool:
    """20 together, and 0.0056 per second."""
    pairs = ((first, later) for first in range(len(times)) for later in range(first, len(times)))
    return all(later - first + 1 <= 20 + 0.0056 * (times[later] - times[first]) for first, later in pairs)


SLOW = QuotaLimits(rate=0.0055, burst=18, starts_full=True)


@virtual_time
async def test_a_request_in_three_minutes_is_a_rate_like_any_other() -> None:
    fleet = Fleet(SLOW)
    async with fleet.processes("a", "b"):
        await asyncio.sleep(7_200)

    times = [at for at, _ in fleet.sent]
    assert keeps_the_limit_of_amazons_list(times)
    assert len(times) >= 18 + 7_000 * 0.0055


@virtual_time
async def test_at_a_low_rate_one_request_after_another_uses_the_whole_burst() -> None:
    fleet, times = Fleet(SLOW), []

    async with fleet.process("a", slots=0) as quota:
        for pause in [0.0] * 20 + [900.0] * 8 + [0.0] * 12:
            await asyncio.sleep(pause)
            await quota.acquire()
            times.append(now())
            await asyncio.sleep(0.3)
            quota.release()

    assert times[17] - times[0] < 30
    # After two hours with a request in 15 minutes, the burst is available again.
    assert times[39] - times[28] < 30
    assert keeps_the_limit_of_amazons_list(times)


@virtual_time
async def test_the_fleet_slows_down_to_the_rate_in_a_header_that_is_named_and_to_no_other() -> None:
    for header, fewest, most in (("x-amzn-RateLimit-Limit", 180, 220), ("", 900, 1_010)):
        fleet = Fleet(QuotaLimits(rate=100.0, rate_header=header))
        async with fleet.process("a") as quota:
            await asyncio.sleep(3)
            quota.observe(200, {"x-amzn-RateLimit-Limit": "20.0"})
            await asyncio.sleep(2)
            before = len(fleet.sent)
            await asyncio.sleep(10)

        assert fewest <= len(fleet.sent) - before <= most


@virtual_time
async def test_a_frozen_process_sends_nothing_by_its_old_lease() -> None:
    fleet = Fleet(QuotaLimits(concurrency=10))
    frozen = 0.0

    own = metrics()
    quota = FleetQuota(
        fleet.server.member("frozen"),
        fleet.limits,
        LONGEST,
        own.rate_limit_wait,
        own.upstream_quota,
        utc_now,
        fleet.paused.append,
        clock=lambda: now() + frozen,
    )
    running = asyncio.create_task(quota.run())
    await quota.acquire()
    quota.release()
    fleet.server.is_available = False
    frozen = 60.0

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await quota.acquire()

    running.cancel()
    await asyncio.wait([running])


@virtual_time
@pytest.mark.parametrize(
    ("limits", "shown"),
    [(QuotaLimits(rate=200.0), ("rate",)), (QuotaLimits(concurrency=10), ("concurrency",))],
    ids=["rate", "concurrency"],
)
async def test_the_gauges_show_nothing_granted_of_a_quota_that_is_not_set(
    limits: QuotaLimits, shown: tuple[str, ...]
) -> None:
    fleet = Fleet(limits)
    granted = worker_shared_metrics(1)

    async with fleet.process("a", measuring=WorkerMetrics.on(granted, 0)):
        await asyncio.sleep(5.0)
        values = [granted.total(UPSTREAM_QUOTA, index)[0] for index in range(len(UPSTREAM_QUOTA.values))]

    assert [kind for kind, value in zip(UPSTREAM_QUOTA.values, values, strict=True) if value] == list(shown)


@virtual_time
async def test_when_the_process_stops_those_that_wait_end_at_once_and_those_that_were_sent_do_not() -> None:
    fleet = Fleet(QuotaLimits(rate=1.0))

    async with fleet.process("a", slots=1) as quota:
        await until(lambda: fleet.sent)
        waiting = [asyncio.create_task(quota.acquire()) for _ in range(5)]
        await asyncio.sleep(0.01)

        quota.close()

        for task in waiting:
            with pytest.raises(NotSent):
                await task
        with pytest.raises(NotSent):
            await quota.acquire()


@virtual_time
async def test_when_the_api_asks_to_wait_those_that_wait_are_turned_away_and_others_may_follow() -> None:
    fleet = Fleet(QuotaLimits(rate=1.0))

    async with fleet.process("a", slots=0) as quota:
        first, *others = [asyncio.create_task(quota.acquire()) for _ in range(5)]
        await asyncio.sleep(0.01)

        quota.turn_away()

        await first
        for task in others:
            with pytest.raises(NotSent, match="asks to wait"):
                await task
        async with asyncio.timeout(5.0):
            await quota.acquire()


@virtual_time
async def test_a_cancelled_wait_leaves_its_turn_to_the_next() -> None:
    fleet = Fleet(QuotaLimits(concurrency=1))

    async with fleet.process("a", slots=0) as quota:
        await quota.acquire()
        first, second = asyncio.create_task(quota.acquire()), asyncio.create_task(quota.acquire())
        await asyncio.sleep(0.01)
        # The turn is given in the same moment in which the task is cancelled.
        quota.release()
        first.cancel()

        async with asyncio.timeout(1.0):
            await second
