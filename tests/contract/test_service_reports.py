"""The reports of the processes of a deployment on real servers, which are one hash for all sources."""

import pytest
from redis.asyncio import Redis

from ingest.domain.operating.service_report import Rejection, ServiceReport, rejections_of
from ingest.domain.operating.source_state import Reason, State
from ingest.queue.operate.controls import controls_key
from ingest.queue.operate.service_reports import ServiceReports

pytestmark = pytest.mark.topologies

REJECTED = {"shop-de": Rejection("own.toml: not TOML", 50.0)}


class Clock:
    now = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports(redis: Redis, queue_name: str, clock: Clock) -> ServiceReports:
    return ServiceReports(redis, queue_name, now=lambda: clock.now)


def report(host: str, until: float, rejected: dict[str, Rejection] = REJECTED) -> ServiceReport:
    return ServiceReport(f"ingest worker on {host}", until, rejected)


async def test_processes_with_the_same_problem_are_named_together(reports: ServiceReports) -> None:
    await reports.write("web1-0", report("web1", 120.0))
    await reports.write("web1-1", report("web1", 120.0))
    await reports.write("web2-0", report("web2", 120.0, {"shop-de": Rejection("own.toml: not TOML", 40.0)}))

    found = rejections_of(await reports.read(), 100.0)

    text = "own.toml: not TOML (ingest worker on web1, ingest worker on web2)"
    assert found == {"shop-de": [Reason(State.REJECTED, text, 40.0, needs_operator=True)]}


async def test_a_report_that_expires_is_not_read_and_removed_by_the_next_process(
    reports: ServiceReports, clock: Clock, redis: Redis, queue_name: str
) -> None:
    await reports.write("web1-0", report("web1", 120.0))
    clock.now = 121.0
    expired = rejections_of(await reports.read(), clock.now)

    removed = await reports.write("web2-0", report("web2", 140.0))

    assert expired == {}
    assert removed == [report("web1", 120.0)]
    assert await redis.hkeys(controls_key(queue_name, what="-reports")) == [b"web2-0"]


async def test_a_report_that_cannot_be_read_is_left_out(reports: ServiceReports, redis: Redis, queue_name: str) -> None:
    await redis.hset(controls_key(queue_name, what="-reports"), "web0", b"\xff")
    await reports.write("web1-0", report("web1", 120.0))
    await reports.write("web2-0", report("web2", 120.0))

    await reports.remove("web1-0")

    assert await reports.read() == [report("web2", 120.0)]
