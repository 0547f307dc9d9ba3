"""Cancelled and closed requests leave no remains."""

import asyncio
import gc
import ssl
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.upstream import delivered
from raw_http import DOCUMENT, IMPATIENT, LIMITS, ORDER, Connect, http, serving
from support import eventually

from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.upstream.http import native
from ingest.upstream.http.transport import NoResponse, Options

pytestmark = pytest.mark.each_client


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def objects_of_the_clients() -> int:
    gc.collect()
    return sum(
        str(type(thing).__module__).startswith(("aiohttp", "httptools", "ingest.upstream"))
        for thing in gc.get_objects()
    )


async def concurrency_is(api: SimulatedApi, wanted: int) -> bool:
    return api.stats().concurrency == wanted


async def test_cancelling_ends_the_pause_between_immediate_tries(api: SimulatedApi, connect: Connect) -> None:
    api.behave(error_rate=1)

    async with connect(api.url_template, replace(LIMITS, tries=10_000)) as client:
        fetching = asyncio.create_task(client.fetch(FetchRequest(ORDER)))
        await eventually(lambda: api.stats().by_status.get("500", 0) >= 2)
        cancelled_at = time.monotonic()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching

    assert time.monotonic() - cancelled_at < 10


async def test_a_fetch_that_is_cancelled_at_any_time_does_not_affect_others(
    api: SimulatedApi, connect: Connect
) -> None:
    async def give_up(turns: int) -> None:
        fetching = asyncio.create_task(client.fetch(FetchRequest(ORDER)))
        for _ in range(turns):
            await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.wait([fetching])

    async with connect(api.url_template) as client:
        for turns in range(12):
            _, *fetched = await asyncio.gather(
                give_up(turns), *(delivered(client.fetch(FetchRequest(ORDER))) for _ in range(5))
            )

            assert {document.body for document in fetched} == {DOCUMENT}


@pytest.mark.parametrize(
    ("answer", "then_close"),
    [
        (http(b"{}", "Content-Length: 2"), False),
        (http(b"{", "Content-Length: 2"), True),
        (b"", False),
    ],
    ids=["whole", "broken off", "none"],
)
async def test_requests_leave_nothing_behind_however_they_end(
    connect: Connect, answer: bytes, *, then_close: bool
) -> None:
    async def wave() -> None:
        fetching = [asyncio.create_task(delivered(client.fetch(FetchRequest(ORDER)))) for _ in range(20)]
        await asyncio.wait(fetching, timeout=0.02)
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    async def at_most(limit: int, count: Callable[[], int]) -> bool:
        return count() <= limit

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(answer)
        if then_close:
            writer.close()

    before = open_files()
    async with serving(write) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}") as client:
        for _ in range(3):
            await wave()
        held = objects_of_the_clients()
        for _ in range(15):
            await wave()

        # Connections that are being closed come and go. A single object per request would result in 300.
        await eventually(lambda: at_most(held + 150, objects_of_the_clients))
    await eventually(lambda: at_most(before, open_files))


async def test_closing_ends_running_requests(api: SimulatedApi, connect: Connect) -> None:
    api.behave(latency="600")

    async with connect(api.url_template) as client:
        fetching = [asyncio.create_task(delivered(client.fetch_once(FetchRequest(ORDER)))) for _ in range(10)]
        await eventually(lambda: concurrency_is(api, 10))

    async with asyncio.timeout(15):
        results = await asyncio.gather(*fetching, return_exceptions=True)
    assert [type(result) for result in results] == [TransientFault] * 10
    await eventually(lambda: concurrency_is(api, 0))


@pytest.mark.parametrize("is_tls", [False, True])
async def test_requests_that_wait_for_a_connection_end_when_the_transport_is_closed(
    server_tls: ssl.SSLContext, *, is_tls: bool
) -> None:
    async def answer_first(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        if b"/first" in head:
            writer.write(http(b"{}", "Content-Length: 2"))

    async with serving(answer_first, server_tls if is_tls else None) as port:
        url = f"{'https' if is_tls else 'http'}://localhost:{port}"
        async with native.opened(Options(LIMITS, is_tls, None)) as transport:
            await transport.send(f"{url}/first", {})
            waiting = [asyncio.create_task(transport.send(f"{url}/", {})) for _ in range(50)]
            await asyncio.sleep(0)

        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 15)

    assert {type(outcome) for outcome in outcomes} == {NoResponse}


async def test_the_pool_keeps_as_many_connections_as_there_were_concurrent_requests(
    api: SimulatedApi, connect: Connect
) -> None:
    api.behave(latency="0.1")

    async with connect(api.url_template) as client:
        for _ in range(3):
            await asyncio.gather(*(delivered(client.fetch(FetchRequest(ORDER))) for _ in range(100)))

        assert api.stats().open_connections == 100
        await delivered(client.fetch(FetchRequest(ORDER)))
        assert api.stats().open_connections == 100


async def test_a_client_works_after_many_timeouts(api: SimulatedApi, connect: Connect) -> None:
    async with connect(api.url_template, replace(IMPATIENT, total=0.1)) as client:
        api.behave(hang_rate=1)
        results = await asyncio.gather(
            *(delivered(client.fetch_once(FetchRequest(ORDER))) for _ in range(50)), return_exceptions=True
        )
        api.behave(hang_rate=0)

        assert all(isinstance(result, TransientFault) for result in results)
    async with connect(api.url_template) as client:
        assert (await delivered(client.fetch(FetchRequest(ORDER)))).body == DOCUMENT


async def test_a_connection_is_left_when_it_has_been_used_for_long() -> None:
    used: set[StreamWriter] = set()

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        used.add(writer)
        writer.write(http(b"{}", "Content-Length: 2"))

    async with serving(write) as port:
        transport = native.NativeTransport(Options(LIMITS, is_tls=False, proxy=None), lifetime=(0.0, 0.0))
        for _ in range(3):
            await transport.send(f"http://127.0.0.1:{port}/", {})
        await transport.close()

    assert len(used) == 3


async def test_a_pooled_connection_that_the_api_has_closed_is_not_a_fault(api: SimulatedApi, connect: Connect) -> None:
    async with connect(api.url_template) as client:
        await delivered(client.fetch(FetchRequest(ORDER)))
        api.behave(reset_rate=1)
        with pytest.raises(TransientFault):
            await delivered(client.fetch_once(FetchRequest(ORDER)))
        api.behave(reset_rate=0)

        assert (await delivered(client.fetch_once(FetchRequest(ORDER)))).body == DOCUMENT
