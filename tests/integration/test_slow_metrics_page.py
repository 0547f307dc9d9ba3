"""The page of /metrics of many sources, which takes seconds."""

import asyncio
from collections.abc import Iterator, Sequence
from socket import create_server
from threading import Event
from urllib.request import urlopen

from prometheus_client import Metric
from prometheus_client.registry import Collector

from ingest.probes.metrics_page import serving
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.metrics import worker_shared_metrics


class SlowCollector(Collector):
    """Takes until `ended` is set, or too long."""

    def __init__(self) -> None:
        self.begun, self.ended = Event(), Event()
        self.was_ended = False

    def collect(self) -> Iterator[Metric]:
        self.begun.set()
        self.was_ended = self.ended.wait(5)
        yield from ()


async def test_a_probe_gets_its_response_while_a_page_is_made() -> None:
    shared_metrics, slow = worker_shared_metrics(1, ["a"]), SlowCollector()
    listener = create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def collectors() -> Sequence[Collector]:
        return [slow]

    def get(path: str) -> bytes:
        with urlopen(url + path, timeout=20) as response:
            return bytes(response.read())

    async with serving(shared_metrics, listener, "worker", ProcessLiveness(shared_metrics, 60.0, 0.0), collectors):
        page = asyncio.create_task(asyncio.to_thread(get, "/metrics"))
        assert await asyncio.to_thread(slow.begun.wait, 5)

        assert await asyncio.to_thread(get, "/healthz") == b"ok\n"

        slow.ended.set()
        assert b'source="a"' in await page
    assert slow.was_ended
