"""A transport that fails by itself is replaced, and neither an order nor the external API is blamed for it."""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from fakes.upstream import delivered
from raw_http import DOCUMENT, ORDER, QUICK, Connect
from structlog.testing import capture_logs

from ingest.domain.errors import TransportFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import UpstreamClient
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.transport import Transport
from ingest.upstream.session import ApiSession


class Clock:
    """Monotonic seconds that a test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def let_transport_settle(self) -> None:
        """A transport that was opened just now is not replaced: a new one would be no better."""
        self.now += 1.0


@dataclass
class Broken:
    """Transports of which the first few answer nothing but with a bug."""

    bugs: int
    bug: Callable[[], Exception] = ZeroDivisionError
    opened: int = 0
    closed: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transport]:
        self.opened += 1
        number = self.opened
        yield _Numbered(self, number)
        self.closed.append(number)


@dataclass
class _Numbered:
    those: Broken
    number: int

    async def send(self, url: str, headers: Mapping[str, str], *_: object) -> bytes:
        del url, headers
        if self.number <= self.those.bugs:
            raise self.those.bug()
        return DOCUMENT


@asynccontextmanager
async def over(broken: Broken, shared_metrics: SharedMetrics, clock: Clock) -> AsyncIterator[UpstreamClient]:
    seconds = WorkerMetrics.on(shared_metrics, 0).upstream_request
    endpoint = Endpoint("http://127.0.0.1:1/{order_id}")
    async with ReplaceableTransport(broken.open, QUICK.total, clock) as transport:
        yield UpstreamClient(ApiSession(transport, endpoint, QUICK.body, seconds), endpoint, QUICK.tries)


@pytest.mark.parametrize("bug", [ZeroDivisionError, MemoryError])
async def test_a_transport_that_fails_is_replaced_and_the_request_made_again(
    shared_metrics: SharedMetrics, bug: Callable[[], Exception]
) -> None:
    broken, clock = Broken(bugs=1, bug=bug), Clock()

    async with over(broken, shared_metrics, clock) as client:
        clock.let_transport_settle()
        with capture_logs() as logs:
            fetched = await delivered(client.fetch(FetchRequest(ORDER)))

    assert fetched.body == DOCUMENT
    assert sorted(broken.closed) == [1, 2]
    assert [entry["event"] for entry in logs] == ["transport_failed"]
    assert logs[0]["log_level"] == "error"
    assert logs[0]["exc_info"]


async def test_if_every_transport_fails_few_are_opened_and_it_is_logged_once(
    shared_metrics: SharedMetrics,
) -> None:
    broken = Broken(bugs=1_000)

    async with over(broken, shared_metrics, Clock()) as client:
        with capture_logs() as logs:
            for _ in range(20):
                with pytest.raises(TransportFault, match="our HTTP client failed: ZeroDivisionError") as fault:
                    await delivered(client.fetch_once(FetchRequest(ORDER)))
                assert not fault.value.reached

    assert broken.opened == len(broken.closed) == 1
    assert [entry["event"] for entry in logs] == ["transport_failed"]


async def test_without_file_descriptors_no_order_is_blamed_and_the_transport_stays_in_use(
    api: SimulatedApi, connect: Connect
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async with connect(api.url_template) as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with capture_logs() as logs, pytest.raises(TransportFault, match="Too many open files") as fault:
                await delivered(client.fetch_once(FetchRequest(ORDER)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        fetched = await delivered(client.fetch_once(FetchRequest(ORDER)))

    assert fetched.body
    assert not fault.value.uses_attempt
    assert [entry["event"] for entry in logs] == ["transport_failed"]


async def test_requests_on_a_replaced_transport_may_finish(shared_metrics: SharedMetrics) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    class Slow(_Numbered):
        async def send(self, url: str, headers: Mapping[str, str], *_: object) -> bytes:
            if url.endswith("slow"):
                started.set()
                await gate.wait()
                assert self.number not in self.those.closed
                return DOCUMENT
            return await super().send(url, headers)

    class Slowly(Broken):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Transport]:
            async with super().open():
                yield Slow(self, self.opened)

    broken, clock = Slowly(bugs=1), Clock()
    async with over(broken, shared_metrics, clock) as client:
        slow = asyncio.create_task(delivered(client.fetch_once(FetchRequest("slow"))))
        await started.wait()
        clock.let_transport_settle()
        await delivered(client.fetch(FetchRequest(ORDER)))
        assert broken.opened == 2
        gate.set()

        assert (await slow).body == DOCUMENT
