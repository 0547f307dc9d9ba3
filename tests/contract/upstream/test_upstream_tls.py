"""TLS: whom the client trusts."""

import asyncio
import gc
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import trustme
import uvloop
from fakes.upstream import delivered
from listener import listening, refuse_handshake
from raw_http import LIMITS, ORDER, TOKEN, Connect, http, serving

from ingest.domain.errors import Fault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.http.native import opened
from ingest.upstream.http.transport import Options

pytestmark = pytest.mark.each_client


async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
    writer.write(http(b"{}", "Content-Length: 2"))


async def test_a_certificate_of_an_authority_that_is_trusted_is_accepted(
    connect: Connect, server_tls: ssl.SSLContext
) -> None:
    async with serving(answer, server_tls) as port, connect(f"https://localhost:{port}/{{order_id}}") as client:
        assert (await delivered(client.fetch(FetchRequest(ORDER)))).body == b"{}"


@pytest.mark.usefixtures("server_tls")
async def test_a_certificate_of_an_unknown_authority_is_refused_before_anything_is_sent(connect: Connect) -> None:
    asked: list[bytes] = []

    async def note(head: bytes, _: StreamReader, __: StreamWriter) -> None:
        asked.append(head)

    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(stranger)
    async with (
        serving(note, stranger) as port,
        connect(f"https://localhost:{port}/{{order_id}}", LIMITS, TOKEN) as client,
    ):
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached
    assert asked == []


async def test_a_certificate_for_another_name_is_refused(connect: Connect, server_tls: ssl.SSLContext) -> None:
    async with serving(answer, server_tls) as port, connect(f"https://127.0.0.1:{port}/{{order_id}}") as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached


async def test_a_server_without_tls_is_refused(connect: Connect) -> None:
    async with (
        serving(answer) as port,
        connect(f"https://localhost:{port}/{{order_id}}", replace(LIMITS, connect=0.3)) as client,
    ):
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached


async def test_the_fault_says_that_a_server_closed_the_connection_during_the_handshake(connect: Connect) -> None:
    async with listening(refuse_handshake) as port, connect(f"https://localhost:{port}/{{order_id}}") as client:
        with pytest.raises(TransientFault, match="closed the connection during the TLS handshake") as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached


@pytest.mark.parametrize("kind", ["native"], indirect=True)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_of_a_connection_that_is_closed_no_part_of_tls_is_kept(
    connect: Connect, server_tls: ssl.SSLContext, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def send_too_much(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b" " * 200_000))
        await writer.drain()

    async def fetch() -> list[object]:
        async with (
            serving(send_too_much, server_tls) as port,
            connect(f"https://localhost:{port}/{{order_id}}", replace(LIMITS, body=100_000)) as client,
        ):
            for _ in range(10):
                with suppress(Fault):
                    await delivered(client.fetch(FetchRequest(ORDER)))
        return [found for found in gc.get_objects() if isinstance(found, ssl.SSLObject) and not found.server_side]

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            kept = runner.run(fetch())
    finally:
        gc.enable()

    assert len(kept) <= 1, "one may have been closed just now"


async def test_a_server_that_refuses_our_certificate_after_our_handshake_is_not_reached_and_its_reason_is_told(
    connect: Connect, server_tls: ssl.SSLContext
) -> None:
    """As with every server that uses TLS 1.3, our part of the handshake ends before the server has seen a certificate."""
    server_tls.verify_mode = ssl.CERT_REQUIRED

    async def refuse(reader: StreamReader, writer: StreamWriter) -> None:
        # The event loop's TLS would close the connection without the reason.
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server_tls.wrap_bio(incoming, outgoing, server_side=True)
        is_refused = False
        while not is_refused:
            incoming.write(await reader.read(1 << 16))
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                is_refused = True
            writer.write(outgoing.read())
        await reader.read()

    async with listening(refuse) as port, connect(f"https://localhost:{port}/{{order_id}}") as client:
        with pytest.raises(TransientFault, match="alert certificate required") as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached
    assert "_ssl.c" not in str(fault.value)


async def test_concurrent_requests_do_not_wait_for_each_other(connect: Connect, server_tls: ssl.SSLContext) -> None:
    waiting = asyncio.Semaphore(0)
    everybody = asyncio.Event()

    async def when_all_are_there(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        waiting.release()
        await everybody.wait()
        await answer(head, reader, writer)

    async with (
        serving(when_all_are_there, server_tls) as port,
        connect(f"https://localhost:{port}/{{order_id}}") as client,
    ):
        fetching = asyncio.gather(*(delivered(client.fetch(FetchRequest(ORDER))) for _ in range(10)))
        for _ in range(10):
            await asyncio.wait_for(waiting.acquire(), 15)
        everybody.set()
        await fetching


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_a_connection_is_closed_whose_handshake_is_not_waited_for(how: str) -> None:
    ended: asyncio.Queue[bytes] = asyncio.Queue()
    begun = asyncio.Event()

    async def hang(reader: StreamReader, _: StreamWriter) -> None:
        assert await reader.read(1 << 16)
        begun.set()
        with suppress(ConnectionError):
            ended.put_nowait(await reader.read())

    limits = replace(LIMITS, connect=60.0 if how == "cancelled" else 0.5, total=60.0)
    async with (
        listening(hang) as port,
        opened(Options(limits=limits, is_tls=True, proxy=None)) as transport,
    ):
        url = f"https://localhost:{port}/"
        request = asyncio.create_task(transport.send(url, {}))
        await begun.wait()
        if how == "cancelled":
            request.cancel()
        await asyncio.wait([request])

        assert await asyncio.wait_for(ended.get(), 15) == b""
