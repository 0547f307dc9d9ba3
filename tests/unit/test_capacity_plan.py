"""The formula of `ingest capacity`: the results for a rate, which agree with measurements."""

import re
from pathlib import Path

import pytest

from ingest.domain.capacity.capacity_plan import CLIENTS, PlannedDemand, plan, process_rate, stored_bytes
from ingest.domain.capacity.worker_memory import worker_memory

PERFORMANCE = Path(__file__).parents[2] / "docs" / "explanation" / "performance.md"


def test_a_rate_takes_as_many_orders_in_flight_as_arrive_within_the_latency_and_some_to_spare() -> None:
    found = plan(PlannedDemand(rate=2000, latency=0.3))

    assert found.in_flight == 600
    assert found.slots == 674
    assert found.processes * found.concurrency >= found.slots
    assert found.api_connections == found.processes * found.concurrency
    assert found.open_files == found.concurrency + 128


def test_the_nodes_of_a_cluster_share_the_work_of_redis() -> None:
    one = plan(PlannedDemand(rate=3000, latency=0.2))
    three = plan(PlannedDemand(rate=3000, latency=0.2, redis_nodes=3))

    assert (one.partitions, three.partitions) == (1, 6)
    assert three.redis_cores == pytest.approx(one.redis_cores / 3)
    assert three.redis_connections == one.redis_connections
    assert three.redis_memory < one.redis_memory
    assert plan(PlannedDemand(rate=12_000, latency=0.2, redis_nodes=3)).rate == 12_000
    assert plan(PlannedDemand(rate=12_000, latency=0.2)).rate < 6_000


@pytest.mark.parametrize(("client", "rate", "measured"), [
    ("aiohttp", 200, 640e-6), ("aiohttp", 1550, 251e-6), ("aiohttp", 9670, 113e-6), ("native", 400, 348e-6),
    ("native", 1582, 179e-6),
])  # fmt: skip
def test_the_cost_of_an_order_is_what_the_performance_page_says(client: str, rate: float, measured: float) -> None:
    assert CLIENTS[client].of(rate) == pytest.approx(measured, rel=0.05)


def test_the_constants_are_figures_of_the_performance_page() -> None:
    section = PERFORMANCE.read_text("utf-8").partition("\n## Orders from a fast API\n")[2].partition("\n#")[0]
    [row] = re.findall(r"^\| service \|(.*)\|$", section, re.MULTILINE)
    rate, cost, _, _, postgres, _ = (float(cell.replace(",", "").rstrip(" MBµs")) for cell in row.split("|"))

    assert CLIENTS["native"].fastest == round(rate / 2 + 0.1)
    assert CLIENTS["native"].least == pytest.approx(cost * 1e-6)
    assert plan(PlannedDemand(rate=1000, latency=0.1)).postgres_cores == pytest.approx(1000 * postgres * 1e-6)


@pytest.mark.parametrize(("processes", "in_flight", "measured"), [
    (1, 20, 58.6e6), (1, 500, 66.6e6), (2, 500, 79.9e6), (4, 200, 102.5e6), (2, 2000, 98.6e6), (4, 400, 101.0e6),
])  # fmt: skip
def test_the_memory_of_a_worker_is_what_was_measured(processes: int, in_flight: int, measured: float) -> None:
    assert worker_memory(processes, in_flight, 1_000) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("size", "measured"), [(528, 741), (1053, 1425), (2081, 1298), (4046, 2044), (20_046, 8520)])
def test_the_size_of_a_stored_order_is_what_was_measured(size: int, measured: float) -> None:
    assert stored_bytes(size) == pytest.approx(measured, rel=0.25)


def test_what_the_api_permits_limits_first_and_the_plan_is_for_the_rate_that_is_left() -> None:
    by_rate = plan(PlannedDemand(rate=50, latency=0.8, quota=40))
    at_once = plan(PlannedDemand(rate=1000, latency=0.5, quota_concurrency=100))
    in_lists = plan(PlannedDemand(rate=1000, latency=0.5, quota=40, bulk=50))

    assert (by_rate.rate, by_rate.limits[0].what) == (40, "the API's requests per second")
    assert (at_once.rate, at_once.slots, at_once.limits[0].what) == (200, 100, "the API's concurrent requests")
    assert in_lists.rate == 1000
    assert in_lists.api_connections < 50


def test_orders_announced_in_lists_let_redis_carry_more() -> None:
    def limit(announced: int) -> float:
        limits = plan(PlannedDemand(rate=1, latency=0.1, announced=announced)).limits
        return next(limit.orders_per_s for limit in limits if limit.what.startswith("Redis"))

    assert limit(100) > 5 * limit(1)


def test_more_processes_than_two_are_for_rates_that_keep_two_cores_busy() -> None:
    one = process_rate("native")

    assert plan(PlannedDemand(rate=one / 100, latency=0.1)).processes == 2
    assert plan(PlannedDemand(rate=4 * one - 1, latency=0.01, announced=100)).processes == 4
    assert plan(PlannedDemand(rate=one, latency=0.01, speed=0.25, announced=100)).processes == 4
    assert plan(PlannedDemand(rate=1000, latency=6)).processes > 6, "by orders in flight"


def test_redis_holds_what_is_announced_during_an_outage() -> None:
    hour, none = (plan(PlannedDemand(rate=1000, latency=0.1, outage=seconds)).redis_memory for seconds in (3600, 0))

    assert hour - none == 3_600_000 * 34


def test_a_tiny_rate_and_a_huge_one_have_a_plan() -> None:
    tiny = plan(PlannedDemand(rate=0.001, latency=0.0001))
    huge = plan(PlannedDemand(rate=1e6, latency=3600, order_bytes=64 * 1024 * 1024, bulk=1000, announced=100_000))

    assert (tiny.slots, tiny.processes, tiny.concurrency) == (1, 2, 1)
    assert 0 < huge.rate < 1e6
    assert huge.concurrency <= 10_000


def test_the_timeout_is_several_times_the_slowest_usual_answer() -> None:
    assert plan(PlannedDemand(rate=1, latency=0.1)).timeout == 5
    assert plan(PlannedDemand(rate=1, latency=0.8, latency_p99=4)).timeout == 12
