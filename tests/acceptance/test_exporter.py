"""The real `ingest exporter` reports the queue while no worker runs."""

import asyncio
import json
import signal
from http.client import HTTPConnection
from pathlib import Path

from integration.scene import Scene
from prometheus_client.parser import text_string_to_metric_families
from support import Cli, Process, eventually

from ingest.domain.source_name import queue_of
from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer


class Exporter:
    """A running exporter, which is scraped like by Prometheus."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionRefusedError:
            return 0, ""
        finally:
            connection.close()

    async def work(self) -> float | None:
        """The sample of the workers' possible work, or None without a sample."""
        _, text = await asyncio.to_thread(self.get, "/metrics")
        values = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
        names = ("ingest_queue_depth", "ingest_queue_pending", "ingest_retries_due")
        return sum(values[name] for name in names) if all(name in values for name in names) else None

    async def reports(self, work: float | None) -> bool:
        async def reported() -> bool:
            return (await asyncio.to_thread(self.get, "/readyz"))[0] == 200 and await self.work() == work

        return await eventually(reported)


def started(cli: Cli, **env: str) -> Exporter:
    port = free_port()
    return Exporter(cli.start("exporter", "--metrics-port", str(port), env=env), port)


async def test_without_a_worker_it_tells_of_one_order_and_of_one_retry_that_is_due(cli: Cli, scene: Scene) -> None:
    exporter = started(cli)
    assert await exporter.reports(0)

    await scene.enqueue("order-1")

    assert await exporter.reports(1)
    async with scene.consumer("a worker") as consumer:
        [delivery] = await consumer.read(1, 0.001)
        assert await exporter.reports(1), "pending"
        await consumer.reschedule(delivery, 3600, 2)
        assert await exporter.reports(0), "later"
        await scene.redis.zadd(scene.keys.retry, {(await scene.redis.zrange(scene.keys.retry, 0, 0))[0]: 1})
        assert await exporter.reports(1), "due"
    exporter.process.send_signal(signal.SIGHUP)
    assert await asyncio.to_thread(exporter.process.wait, 20) == 0, "its terminal has closed"


async def test_without_redis_it_lives_and_has_no_sample(cli: Cli, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        await asyncio.to_thread(own.stop)

        exporter = started(cli, INGEST_REDIS_URL=own.url)

        assert await exporter.reports(None)
        assert await asyncio.to_thread(exporter.get, "/healthz") == (200, "ok\n")
        await asyncio.to_thread(own.start)
        assert await exporter.reports(0)


async def test_an_outage_is_logged_when_it_begins_and_when_it_is_over_and_not_at_each_scrape(
    cli: Cli, tmp_path: Path
) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        exporter = started(cli, INGEST_REDIS_URL=own.url, INGEST_LOG_FORMAT="json")
        assert await exporter.reports(0)
        await asyncio.to_thread(own.stop)
        for _ in range(3):
            assert await exporter.reports(None)
        await asyncio.to_thread(own.start)
        assert await exporter.reports(0)
        exporter.process.send_signal(signal.SIGTERM)

        _, log = await asyncio.to_thread(exporter.process.communicate)

    about_redis = [event for event in map(json.loads, log.splitlines()) if event.get("server") == "redis"]
    assert [event["event"] for event in about_redis] == ["unavailable", "available_again"]


SOURCES_FILE = """
[sources.{name}.upstream]
url = "http://127.0.0.1:9/{name}/{{order_id}}"
"""


def sources_file(path: Path, *names: str) -> Path:
    path.write_text("".join(SOURCES_FILE.format(name=name) for name in names), encoding="utf-8")
    return path


async def depths(exporter: Exporter) -> dict[str, float]:
    """The depth of each source's queue."""
    _, text = await asyncio.to_thread(exporter.get, "/metrics")
    return {
        sample.labels["source"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "ingest_queue_depth"
    }


async def test_each_source_is_reported_with_its_name_and_one_with_broken_keys_hides_no_other(
    cli: Cli, scene: Scene, tmp_path: Path
) -> None:
    file = sources_file(tmp_path / "sources.toml", "shop-de", "shop-fr", "warehouse")
    exporter = started(cli, INGEST_SOURCES=str(file), INGEST_LOG_FORMAT="json")
    queues = {name: queue_of(scene.queue, name) for name in ("shop-de", "shop-fr", "warehouse", "added")}
    await Producer(scene.redis, queues["shop-de"]).enqueue(["order-1"])
    await Producer(scene.redis, queues["warehouse"]).enqueue(["order-1", "order-2"])

    async def reported(expected: dict[str, float]) -> None:
        async def equal() -> bool:
            return (await asyncio.to_thread(exporter.get, "/readyz"))[0] == 200 and await depths(exporter) == expected

        await eventually(equal)

    try:
        await reported({"shop-de": 1, "shop-fr": 0, "warehouse": 2})
        await scene.redis.set(Keys.of(queues["shop-fr"]).retry, "text")
        await reported({"shop-de": 1, "warehouse": 2})
        sources_file(file, "shop-de", "shop-fr", "added")
        await reported({"shop-de": 1, "added": 0})
    finally:
        for queue in queues.values():
            await scene.redis.delete(Keys.of(queue).stream, Keys.of(queue).retry)
    exporter.process.send_signal(signal.SIGTERM)
    _, log = await asyncio.to_thread(exporter.process.communicate)
    problems = [event for event in map(json.loads, log.splitlines()) if event["event"] == "unavailable"]
    assert [(event["source"], event["server"]) for event in problems] == [("shop-fr", "redis")]


async def test_it_reports_only_the_sources_that_are_named(cli: Cli, tmp_path: Path) -> None:
    file = sources_file(tmp_path / "sources.toml", "shop-de", "shop-fr", "warehouse")
    port = free_port()
    arguments = ("--source", "shop-de", "--source", "warehouse", "--metrics-port", str(port))

    exporter = Exporter(cli.start("exporter", *arguments, env={"INGEST_SOURCES": str(file)}), port)

    async def reported() -> bool:
        return (await asyncio.to_thread(exporter.get, "/readyz"))[0] == 200 and set(await depths(exporter)) == {
            "shop-de",
            "warehouse",
        }

    await eventually(reported)
