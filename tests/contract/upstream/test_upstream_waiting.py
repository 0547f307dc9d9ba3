"""Timeouts of the client, and their errors."""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from fakes.upstream import delivered
from raw_http import LIMITS, ORDER, QUICK, Connect, answering, counted, http, serving

from ingest.domain.errors import ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.telemetry.shared_metrics import SharedMetrics

pytestmark = pytest.mark.each_client


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port that ignores attempts to connect because its queue of unaccepted connections is full."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        while True:
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(0.3)
            try:
                waiting.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield port


async def test_a_connection_that_times_out_has_not_reached_the_api(
    connect: Connect, shared_metrics: SharedMetrics
) -> None:
    with deaf_port() as port:
        async with connect(f"http://127.0.0.1:{port}/{{order_id}}", replace(LIMITS, connect=0.2)) as client:
            with pytest.raises(TransientFault, match="no response in time") as fault:
                await asyncio.wait_for(delivered(client.fetch(FetchRequest(ORDER))), 15)

    assert not fault.value.reached
    assert counted(shared_metrics) == {"timeout": 1}


async def test_the_read_timeout_does_not_include_connecting(connect: Connect) -> None:
    with deaf_port() as port:
        async with connect(f"http://127.0.0.1:{port}/{{order_id}}", replace(LIMITS, connect=1, read=0.1)) as client:
            started = asyncio.get_running_loop().time()
            with pytest.raises(TransientFault):
                await asyncio.wait_for(delivered(client.fetch(FetchRequest(ORDER))), 15)

    assert asyncio.get_running_loop().time() - started > 0.9


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", http(b"{", "Content-Length: 2")])
async def test_the_read_timeout_ends_a_request_before_its_total_time(
    connect: Connect, shared_metrics: SharedMetrics, sent: bytes
) -> None:
    async with (
        answering(sent, then_close=False) as (template, _),
        connect(template, replace(LIMITS, read=0.2, total=600)) as client,
    ):
        with pytest.raises(TransientFault, match="no response in time") as fault:
            await asyncio.wait_for(delivered(client.fetch(FetchRequest(ORDER))), 15)

    assert fault.value.reached
    assert counted(shared_metrics) == {"timeout": 1}


async def test_the_read_timeout_applies_to_a_reused_connection(api: SimulatedApi, connect: Connect) -> None:
    async with connect(api.url_template, replace(LIMITS, read=0.2, total=600)) as client:
        await delivered(client.fetch(FetchRequest(ORDER)))
        api.behave(hang_rate=1)

        with pytest.raises(TransientFault, match="no response in time"):
            await asyncio.wait_for(delivered(client.fetch(FetchRequest(ORDER))), 15)


async def test_a_response_may_take_longer_than_the_read_timeout(connect: Connect) -> None:
    async def trickle(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"", "Content-Length: 10"))
        for _digit in range(10):
            await asyncio.sleep(0.15)
            writer.write(b"1")

    async with (
        serving(trickle) as port,
        connect(f"http://127.0.0.1:{port}/{{order_id}}", replace(LIMITS, read=1)) as client,
    ):
        body = (await delivered(client.fetch(FetchRequest(ORDER)))).body

    assert body == b"1111111111"


async def test_a_slow_response_ends_after_the_total_time(connect: Connect, shared_metrics: SharedMetrics) -> None:
    async def trickle(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"", "Content-Length: 10000"))
        for _digit in range(10_000):
            await asyncio.sleep(0.05)
            writer.write(b"1")
            await writer.drain()

    async with (
        serving(trickle) as port,
        connect(f"http://127.0.0.1:{port}/{{order_id}}", replace(LIMITS, read=30, total=0.5)) as client,
    ):
        with pytest.raises(TransientFault, match="no response in time"):
            await asyncio.wait_for(delivered(client.fetch(FetchRequest(ORDER))), 15)

    assert counted(shared_metrics) == {"timeout": 1}


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", http(b"{", "Content-Length: 2")])
async def test_a_connection_that_ends_early_has_reached_the_api(connect: Connect, sent: bytes) -> None:
    async with answering(sent) as (template, _), connect(template) as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.reached


@pytest.mark.parametrize("status", ["429 Slow", "503 Busy"])
async def test_a_retry_after_date_refers_to_the_clock_of_the_api(connect: Connect, status: str) -> None:
    far_off = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    until = far_off + timedelta(seconds=30)
    headers = [f"date: {format_datetime(far_off, usegmt=True)}", f"retry-after: {format_datetime(until, usegmt=True)}"]

    answer = http(b"", *headers, "Content-Length: 0", status=status)
    async with answering(answer) as (template, _), connect(template, QUICK) as client:
        with pytest.raises(ThrottledFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.after == 30
