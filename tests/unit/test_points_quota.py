"""Processes that share a quota of points, in virtual time: they use nearly all points, and are hardly ever rejected."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from fakes.leases import MemoryQuota
from fakes.virtual_time import now, virtual_time
from fakes.workers import metrics
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.fetch.quota import QueryCost, QuotaLimits
from ingest.upstream.quota.point_rate import PointRate, cost_of
from ingest.upstream.quota.quota import FleetQuota
from ingest.upstream.session import utc_now

LIMITS = QuotaLimits(rate=1_000 / 40, cost=40.0)
REQUESTED = 92.0


class Shop:
    """An API with a bucket of points, which takes the requested cost, and gives back the unused part of a request."""

    def __init__(self, rate: float, *, size: float = 0.0, usual: tuple[float, float] = (10.0, 60.0)) -> None:
        self.rate, self.size = rate, size or 20 * rate
        self.left, self.at = self.size, now()
        self.used = 0.0
        self.throttled: list[float] = []
        self.usual = usual
        self.random = Random(1)

    def available(self) -> float:
        self.left, self.at = min(self.size, self.left + (now() - self.at) * self.rate), now()
        return self.left

    async def send(self, *_request: Any) -> bytes:
        await asyncio.sleep(0.1)
        if self.available() < REQUESTED:
            self.throttled.append(now())
            return self.response(None)
        self.left -= REQUESTED
        actual = self.random.uniform(*self.usual)
        await asyncio.sleep(self.random.uniform(0.05, 0.3))
        self.left = min(self.size, self.available() + REQUESTED - actual)
        self.used += actual
        return self.response(actual)

    def response(self, actual: float | None) -> bytes:
        status = {"maximumAvailable": self.size, "currentlyAvailable": int(self.available()), "restoreRate": self.rate}
        cost = {"requestedQueryCost": REQUESTED, "actualQueryCost": actual, "throttleStatus": status}
        return json.dumps({"data": {}, "extensions": {"cost": cost}}).encode()


class Fleet:
    """Processes with a backlog."""

    def __init__(self, shop: Shop, limits: QuotaLimits = LIMITS) -> None:
        self.shop, self.limits = shop, limits
        self.server = MemoryQuota(limits, now)
        self.in_flight: dict[str, int] = {}
        self.paused: list[float] = []

    async def run(self, seconds: float, *names: str, slots: int = 50) -> None:
        async with AsyncExitStack() as stack:
            for name in names:
                own = metrics()
                quota = FleetQuota(
                    self.server.member(name), self.limits, 5.0, own.rate_limit_wait, own.upstream_quota, utc_now,
                    self.paused.append, clock=now,
                )  # fmt: skip
                tasks = [asyncio.create_task(quota.run())]
                tasks += [asyncio.create_task(self._send(name, quota)) for _ in range(slots)]
                stack.push_async_callback(asyncio.wait, tasks)
                stack.callback(lambda tasks=tasks: [task.cancel() for task in tasks])  # type: ignore[misc]
            await asyncio.sleep(seconds)

    async def _send(self, name: str, quota: FleetQuota) -> None:
        while True:
            await quota.acquire()
            self.in_flight[name] = self.in_flight.get(name, 0) + 1
            try:
                await quota.watched(self.shop.send)("", {}, "POST", None, None)
            finally:
                self.in_flight[name] -= 1
                quota.release()


@virtual_time
@pytest.mark.parametrize(("processes", "rate"), [(1, 100.0), (4, 100.0), (16, 100.0), (16, 1_000.0)])
async def test_nearly_all_points_are_used_and_no_request_is_rejected(rate: float, processes: int) -> None:
    shop = Shop(rate)
    fleet = Fleet(shop)
    names = [f"p{number}" for number in range(processes)]

    await fleet.run(60.0, *names)
    used, throttled = shop.used, len(shop.throttled)
    await fleet.run(120.0, *names)

    # Processes that start together have not measured the cost yet.
    assert throttled + len(shop.throttled) <= processes / 4
    assert shop.used - used >= 0.9 * 120 * rate
    assert shop.available() > 0.2 * shop.size


@virtual_time
async def test_a_process_sends_one_request_until_it_knows_what_requests_cost() -> None:
    shop = Shop(100.0)
    fleet = Fleet(shop)
    first_response = shop.send

    async def send(*request: Any) -> bytes:
        await asyncio.sleep(10.0)
        return await first_response(*request)

    shop.send = send  # type: ignore[method-assign]
    running = asyncio.create_task(fleet.run(30.0, "a"))
    await asyncio.sleep(9.0)
    unknown = dict(fleet.in_flight)
    await asyncio.sleep(20.0)
    known = dict(fleet.in_flight)
    await running

    assert unknown == {"a": 1}
    assert known["a"] > 1


@virtual_time
async def test_orders_that_become_more_expensive_are_sent_more_slowly() -> None:
    shop = Shop(100.0)
    fleet = Fleet(shop)
    await fleet.run(60.0, "a", "b")

    shop.usual = (60.0, 92.0)
    before = shop.used
    await fleet.run(180.0, "a", "b")

    assert shop.throttled == []
    assert shop.used - before >= 0.9 * 180 * 100


@virtual_time
async def test_orders_after_many_that_cost_nothing_are_not_rejected() -> None:
    shop = Shop(100.0)
    fleet = Fleet(shop)
    shop.usual = (0.0, 0.0)
    await fleet.run(60.0, "a", "b")

    shop.usual = (10.0, 60.0)
    await fleet.run(60.0, "a", "b")

    assert shop.throttled == []


@virtual_time
async def test_the_configured_rate_is_the_most_even_if_the_shop_restores_more() -> None:
    shop = Shop(1_000.0)
    fleet = Fleet(shop, QuotaLimits(rate=50 / 40, cost=40.0))

    await fleet.run(120.0, "a", "b")

    assert 0.85 * 50 * 120 <= shop.used <= 1.05 * 50 * 120


@virtual_time
async def test_a_shop_that_sends_no_cost_gets_the_configured_rate() -> None:
    shop = Shop(1_000.0)
    count = 0

    async def send(*_request: Any) -> bytes:
        nonlocal count
        count += 1
        await asyncio.sleep(0.1)
        return b'{"data": {}}'

    shop.send = send  # type: ignore[method-assign]
    await Fleet(shop, QuotaLimits(rate=10.0, cost=40.0)).run(60.0, "a")

    assert 500 <= count <= 610


@virtual_time
async def test_too_few_points_for_the_next_request_pause_the_fleet() -> None:
    shop = Shop(10.0, size=100.0)
    shop.left = 93.0
    fleet = Fleet(shop)

    await fleet.run(3.0, "a")

    assert fleet.paused
    assert fleet.paused[0] == pytest.approx(3.0, abs=3.0)


@given(st.binary(max_size=50) | st.recursive(st.none() | st.floats() | st.text(), lambda v: st.dictionaries(
    st.sampled_from(["extensions", "cost", "throttleStatus", "restoreRate", "requestedQueryCost"]), v)).map(
        lambda value: json.dumps(value).encode()))  # fmt: skip
def test_anything_else_contains_no_cost(body: bytes) -> None:
    assert cost_of(body) is None


def cost(**status: Any) -> Mapping[str, Any]:
    return {"requestedQueryCost": 92, "actualQueryCost": None, "throttleStatus": status}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"maximumAvailable": 1000.0, "currentlyAvailable": 52, "restoreRate": 50.0},
            QueryCost(92.0, None, 1000.0, 52.0, 50.0),
        ),
        (
            {"maximumAvailable": 1000, "currentlyAvailable": -5, "restoreRate": 50},
            QueryCost(92.0, None, 1000.0, 0.0, 50.0),
        ),
        ({"maximumAvailable": 0, "currentlyAvailable": 0, "restoreRate": 50}, None),
        ({"maximumAvailable": 1000, "currentlyAvailable": 0, "restoreRate": 0}, None),
        ({"maximumAvailable": 1000, "currentlyAvailable": 0, "restoreRate": 1e300}, None),
    ],
)
def test_the_cost_is_read_from_the_extensions(status: dict[str, Any], expected: QueryCost | None) -> None:
    body = json.dumps({"data": None, "extensions": {"cost": cost(**status)}}).encode()

    assert cost_of(body) == expected


@pytest.mark.parametrize("actual", [-5, 1e300, None])
def test_a_cost_that_cannot_be_is_ignored(actual: float | None) -> None:
    status = {"maximumAvailable": 1000, "currentlyAvailable": 500, "restoreRate": 50}
    body = json.dumps({"extensions": {"cost": {**cost(**status), "actualQueryCost": actual}}}).encode()

    found = cost_of(body)

    assert found is not None
    assert found.actual is None


def test_a_throttled_request_waits_until_its_points_are_restored() -> None:
    throttled = QueryCost(requested=92.0, actual=None, maximum=1_000.0, available=52.0, restored=50.0)

    assert throttled.wait == pytest.approx(0.8)
    rate = PointRate(LIMITS)
    rate.learn(throttled, 0.0)
    assert rate.requests(0.0) < 0.3 * 50 / 40
