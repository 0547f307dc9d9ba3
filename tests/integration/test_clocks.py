"""Workers on hosts with wrong clocks, one an hour ahead and one an hour behind, only depend on one clock."""

import ast
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from integration.scene import RunningWorker, Scene, document, ids
from support import eventually

import ingest
from ingest.domain.deliveries.announcement import Announcement
from ingest.flow.clock import SharedClock
from ingest.queue.produce.producer import Producer

HOUR = 3600.0
AHEAD_THEN_BEHIND = [(HOUR, -HOUR), (-HOUR, HOUR)]


@asynccontextmanager
async def worker_whose_host_is_ahead(scene: Scene, seconds: float, **changed: object) -> AsyncIterator[RunningWorker]:
    """A worker on a host whose clock is ahead by this time. Only the shared clock reads it."""
    clock = SharedClock()
    clock._offset += seconds
    async with scene.worker(f"ahead by {seconds}", clock=clock, **changed) as running:
        yield running
        await running.stop()


@pytest.mark.parametrize(("first", "second"), AHEAD_THEN_BEHIND)
async def test_of_two_fetches_of_an_order_without_a_version_the_later_wins_whatever_the_hosts_clocks_say(
    scene: Scene, first: float, second: float
) -> None:
    scene.api.put_order("X", document("X", status="placed"))
    async with worker_whose_host_is_ahead(scene, first):
        await scene.enqueue("X")
        await scene.finished()
    scene.api.put_order("X", document("X", status="shipped"))

    async with worker_whose_host_is_ahead(scene, second) as worker:
        await scene.enqueue("X")
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="stored") == 1
    assert (await scene.rows())["X"]["status"] == "shipped"


@pytest.mark.parametrize("offset", [HOUR, -HOUR])
async def test_what_a_row_says_of_times_is_true_whatever_the_hosts_clock_says(scene: Scene, offset: float) -> None:
    async with worker_whose_host_is_ahead(scene, offset) as worker:
        await scene.enqueue("X")
        await scene.finished()
        latency = worker.metric("ingest_order_latency_seconds_sum")

        assert worker.metric("ingest_order_latency_seconds_count") == 1
    row = (await scene.rows())["X"]
    now, minute = datetime.now(UTC), timedelta(minutes=1)
    assert 0 < latency < 60
    for name in ("enqueued_at", "fetched_at", "version", "ingested_at"):
        assert now - minute < row[name] <= now + timedelta(seconds=1), name
    assert row["enqueued_at"] <= row["fetched_at"] + timedelta(milliseconds=100)


def test_no_package_that_processes_deliveries_asks_the_hosts_clock_except_the_shared_clock_and_its_defaults() -> None:
    package = Path(ingest.__file__).parent
    asking = []
    for part in ("domain", "flow", "queue", "store", "upstream"):
        for path in sorted((package / part).rglob("*.py")):
            if "inspection" in (path.stem, path.parent.name):
                continue  # compares this machine's clock with a server's, for operators
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns" | "gmtime" | "localtime"):
                        asking.append(path.relative_to(package).as_posix())
                    case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "utcnow" | "today"):
                        asking.append(path.relative_to(package).as_posix())

    assert asking == [
        "flow/clock.py",
        "flow/pace/adaptive_limit.py",
        "flow/settle/settlement.py",
        "flow/tracing/delivery_traces.py",
        "queue/consume/count_reports.py",  # the minute of counts that operators see
        "queue/consume/partition.py",  # since when operators see a trouble
        "queue/operate/partition_troubles.py",  # the same
        "queue/operate/service_reports.py",  # whether a report is current
        "upstream/access/token_file.py",  # its tokens expire by the clock of each host
        "upstream/session.py",
    ]


async def test_processes_keep_one_clock_while_the_clock_of_redis_is_set_ahead(scene: Scene) -> None:
    often, seldom = SharedClock(), SharedClock()
    async with scene.worker("often", clock=often), scene.worker("seldom", clock=seldom, heartbeat_ttl=60.0):
        await scene.enqueue("X")
        await scene.finished()
        stepped_at = round((await scene.redis.time())[0] * 1000)
        await scene.redis.hset(scene.keys.clock, mapping={"ahead": 20_000, "noted_at": stepped_at})

        async def has_reported() -> bool:
            latest = await scene.redis.hget(scene.keys.clock, "latest")
            return int(latest or 0) > stepped_at + 1000

        await eventually(has_reported)

        assert abs(often.now() - seldom.now()) < 10
        await scene.enqueue("Y")
        await scene.finished()
    rows = await scene.rows()
    assert timedelta(0) < rows["Y"]["fetched_at"] - rows["X"]["fetched_at"] < timedelta(seconds=10)


@pytest.mark.parametrize("step", [8.0, 100.0])
async def test_after_the_clock_of_redis_was_set_back_a_push_is_newer_than_what_was_fetched_before(
    scene: Scene, step: float
) -> None:
    order_ids = ids(20)
    # As after a step: the last entry has the time from before it, and so have all that follow until the clock has caught up.
    now = round((await scene.redis.time())[0] * 1000)
    before = now + round(step * 1000)
    await scene.redis.xadd(scene.keys.stream, {"order_id": "before"}, id=f"{before}-0")
    await scene.redis.hset(scene.keys.clock, mapping={"ahead": before - now, "noted_at": now, "latest": before})

    async with scene.worker():
        await scene.enqueue(*order_ids)
        await scene.finished()
        fetched = await scene.rows()
        for status in ("packed", "shipped"):
            pushed = [Announcement(order_id, document=document(order_id, status=status)) for order_id in order_ids]
            await Producer(scene.redis, scene.queue).enqueue(pushed)
            await scene.finished()

    rows = await scene.rows()
    assert {rows[order_id]["status"] for order_id in order_ids} == {"shipped"}
    assert all(rows[order_id]["version"] > fetched[order_id]["version"] for order_id in order_ids)
