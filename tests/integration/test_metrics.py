"""/metrics of the real `ingest worker`: one page for all its processes, right to the last order."""

import asyncio
import os
import platform
import signal
import time
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.scene import Scene, ids
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support import Cli, eventually

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port

QUEUE = {
    "ingest_queue_depth",
    "ingest_queue_pending",
    "ingest_queue_oldest_age_seconds",
    "ingest_queue_consumers",
    "ingest_retries_scheduled",
    "ingest_dead_letters",
}
LANES = {"ingest_queue_lane_depth", "ingest_queue_lane_pending", "ingest_queue_lane_oldest_age_seconds"}
# Name as parsed: a counter's without _total. Type, label, and the label's values that are there from the start.
WORKERS = {
    "ingest_orders": ("counter", "outcome", {"stored", "unchanged", "erased", "retried", "dead"}),
    "ingest_order_latency_seconds": ("histogram", None, set()),
    "ingest_upstream_request_seconds": ("histogram", "code", {"2xx"}),  # others with their first response
    "ingest_store_seconds": ("histogram", None, set()),
    "ingest_store_batch_rows": ("histogram", None, set()),
    "ingest_last_success_timestamp_seconds": ("gauge", None, set()),
    "ingest_in_flight": ("gauge", None, set()),
    "ingest_concurrency_limit": ("gauge", None, set()),
    "ingest_redeliveries": ("counter", "reason", {"idle", "restart"}),
    "ingest_event_loop_lag_seconds": ("histogram", None, set()),
}
OF_PROCESSES = {"ingest_event_loop_lag_seconds", "ingest_store_seconds", "ingest_store_batch_rows"}


class Page:
    """One answer of /metrics."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def __getitem__(self, name: str) -> float:
        return self.value(name)

    def value(self, name: str, **labels: str) -> float:
        of_source = name, frozenset({"source": "", **labels}.items())
        return self._values[of_source if of_source in self._values else (name, frozenset(labels.items()))]

    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Everything that must never go back."""
        return {
            key: value
            for key, value in self._values.items()
            if key[0].endswith(("_total", "_count", "_bucket", "_sum"))
        }


class Scraper:
    """Asks one /metrics."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.port = free_port()
        self._http = http

    async def text(self, accept: str = "text/plain") -> tuple[str, str]:
        """The content type and the page."""
        async with self._http.get(f"http://127.0.0.1:{self.port}/metrics", headers={"Accept": accept}) as response:
            assert response.status == 200
            return response.headers["Content-Type"], await response.text()

    async def page(self) -> Page:
        return Page(list(parse_text((await self.text())[1])))

    async def answers(self) -> bool:
        try:
            await self.text()
        except aiohttp.ClientConnectionError:
            return False
        return True


@pytest.fixture
async def metrics() -> AsyncIterator[Scraper]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
        yield Scraper(http)


@pytest.fixture
def workers(cli: Cli, scene: Scene, metrics: Scraper) -> Iterator[Workers]:
    env = {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_METRICS_PORT": str(metrics.port)}
    with closing_workers(cli, env) as workers:
        yield workers


async def run_of(scene: Scene, workers: Workers, metrics: Scraper, count: int) -> WorkerCommand:
    """A command of two processes that has stored so many orders."""
    await scene.enqueue(*ids(count))
    command = workers.start(processes=2, concurrency=10)
    await scene.stored_at_least(count)
    await scene.finished()

    async def both_work() -> bool:
        return (await scene.state()).consumers == 2

    async def counted() -> bool:
        # A worker counts an order after Redis has answered its ack.
        page = await metrics.page()
        return page.value("ingest_orders_total", outcome="stored") >= count and page["ingest_in_flight"] == 0

    await eventually(both_work)
    await eventually(metrics.answers)
    await eventually(counted)
    return command


async def test_one_page_counts_for_all_processes_and_is_right_after_a_run(
    scene: Scene, workers: Workers, metrics: Scraper
) -> None:
    scene.api.behave(latency="0.005")
    started = time.time() - 1.0
    await run_of(scene, workers, metrics, 300)

    page = await metrics.page()

    assert page.value("ingest_orders_total", outcome="stored") == 300
    assert page.value("ingest_orders_total", outcome="dead") == 0
    assert page["ingest_order_latency_seconds_count"] == 300
    assert page["ingest_order_latency_seconds_sum"] >= 300 * 0.005
    assert page.value("ingest_upstream_request_seconds_count", code="2xx") == 300
    assert page["ingest_store_batch_rows_sum"] == 300
    assert page["ingest_store_batch_rows_count"] == page["ingest_store_seconds_count"] > 1
    # One of two processes has it: the latest counts, not the sum.
    assert started <= page["ingest_last_success_timestamp_seconds"] <= time.time() + 1.0
    assert page["ingest_in_flight"] == 0
    assert page["ingest_concurrency_limit"] == 2 * 10
    queue = {name: page.value(name, stream=scene.queue) for name in QUEUE}
    assert queue == {**dict.fromkeys(QUEUE, 0.0), "ingest_queue_consumers": 2.0}


async def test_names_types_and_labels_are_those_that_dashboards_use(
    scene: Scene, workers: Workers, metrics: Scraper
) -> None:
    await run_of(scene, workers, metrics, 1)

    page = await metrics.page()

    for name in QUEUE:
        assert page.families[name].type == "gauge"
        assert [sample.labels for sample in page.families[name].samples] == [{"source": "", "stream": scene.queue}]
    for name in LANES:
        assert page.families[name].type == "gauge"
        labels = [sample.labels for sample in page.families[name].samples]
        assert labels == [{"source": "", "stream": scene.queue, "lane": lane} for lane in ("main", "express")]
    [release] = page.families["ingest_build_info"].samples
    assert (release.labels, release.value) == (
        {"version": version("order-ingest"), "python": platform.python_version()},
        1.0,
    )
    for name, (kind, label, values) in WORKERS.items():
        family = page.families[name]
        assert family.type == kind, name
        assert family.documentation
        labels = [{key: value for key, value in sample.labels.items() if key != "le"} for sample in family.samples]
        by_source = set() if name in OF_PROCESSES else {"source"}
        assert {key for label_set in labels for key in label_set} == by_source | ({label} if label else set()), name
        if label:
            assert {label_set[label] for label_set in labels} >= values, name
    for text, parse in (("text/plain", parse_text), ("application/openmetrics-text; version=1.0.0", parse_openmetrics)):
        content_type, body = await metrics.text(text)
        assert content_type.startswith(text.partition(";")[0])
        assert {family.name for family in parse(body)} >= QUEUE | LANES | WORKERS.keys()


async def test_the_gauges_show_what_waits_and_what_is_pending(scene: Scene, workers: Workers, metrics: Scraper) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ids(30))
    await scene.redis.xadd(scene.keys.dead, {"order_id": "X"})
    workers.start(processes=2, concurrency=5)
    await eventually(metrics.answers)

    async def shows_all() -> Page | None:
        page = await metrics.page()
        # A scrape reads Redis and the workers' counts one after the other, while the workers may still read.
        is_full = page["ingest_in_flight"] == page.value("ingest_queue_pending", stream=scene.queue) == 10
        return page if is_full else None

    page = await eventually(shows_all)
    assert page is not None
    queue = {name: page.value(name, stream=scene.queue) for name in QUEUE}
    assert queue.pop("ingest_queue_oldest_age_seconds") > 0
    assert queue == {
        "ingest_queue_depth": 20,
        "ingest_queue_pending": 10,
        "ingest_queue_consumers": 2,
        "ingest_retries_scheduled": 0,
        "ingest_dead_letters": 1,
    }
    lanes = {
        (name, lane): page.value(name, stream=scene.queue, lane=lane)
        for name in ("ingest_queue_lane_depth", "ingest_queue_lane_pending")
        for lane in ("main", "express")
    }
    assert list(lanes.values()) == [20, 0, 10, 0]


async def test_without_redis_the_page_still_shows_what_the_workers_counted(
    scene: Scene, workers: Workers, metrics: Scraper, tmp_path: Path
) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        async with Scene.open(own.url, scene.dsn, scene.queue) as elsewhere:
            workers.env |= {"INGEST_REDIS_URL": own.url}
            await run_of(elsewhere, workers, metrics, 10)
            await asyncio.to_thread(own.stop)

            page = await metrics.page()

            assert page.value("ingest_orders_total", outcome="stored") == 10
            assert not (QUEUE | LANES) & page.families.keys(), "an unknown value is absent, not stale"
            await asyncio.to_thread(own.start)

            async def back() -> bool:
                return (await metrics.page()).families.keys() >= QUEUE

            await eventually(back)


async def test_counters_do_not_go_back_when_a_process_is_killed_and_gauges_do(
    scene: Scene, workers: Workers, metrics: Scraper
) -> None:
    command = await run_of(scene, workers, metrics, 100)
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ids(10, "held"))

    async def holds_all() -> bool:
        return (await metrics.page())["ingest_in_flight"] == 10

    await eventually(holds_all)
    before = (await metrics.page()).counters()
    for slot in (0, 1):
        os.kill(command.pid_of(f"worker-{slot}"), signal.SIGKILL)

    async def replaced() -> bool:
        after = (await metrics.page()).counters()
        assert all(after[key] >= value for key, value in before.items())
        return after["ingest_redeliveries_total", frozenset({("source", ""), ("reason", "restart")})] == 10

    async def both_have_started() -> bool:
        return (await metrics.page())["ingest_concurrency_limit"] == 20

    await eventually(replaced)
    # One of them may have reclaimed everything before the other one has started.
    await eventually(both_have_started)
    await eventually(holds_all)
    scene.api.behave(hang_rate=0.0)
    assert (await metrics.page())["ingest_process_restarts_total"] == 2
