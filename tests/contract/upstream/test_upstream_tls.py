"""TLS: whom the client trusts, and HTTP/2 where it is offered."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from dataclasses import replace

import pytest
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from raw_http import LIMITS, ORDER, TOKEN, Connect, http, serving

from ingest.domain.errors import TransientFault


async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
    writer.write(http(b"{}", "Content-Length: 2"))


async def test_a_certificate_of_an_authority_that_is_trusted_is_accepted(
    connect: Connect, server_tls: ssl.SSLContext
) -> None:
    async with serving(answer, server_tls) as port, connect(f"https://localhost:{port}/{{order_id}}") as client:
        assert (await client.fetch(ORDER)).body == b"{}"


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
            await client.fetch(ORDER)

    assert not fault.value.reached
    assert asked == []


async def test_a_certificate_for_another_name_is_refused(connect: Connect, server_tls: ssl.SSLContext) -> None:
    async with serving(answer, server_tls) as port, connect(f"https://127.0.0.1:{port}/{{order_id}}") as client:
        with pytest.raises(TransientFault) as fault:
            await client.fetch(ORDER)

    assert not fault.value.reached


async def test_a_plain_server_is_no_server_of_tls(connect: Connect) -> None:
    async with (
        serving(answer) as port,
        connect(f"https://localhost:{port}/{{order_id}}", replace(LIMITS, connect=0.3)) as client,
    ):
        with pytest.raises(TransientFault) as fault:
            await client.fetch(ORDER)

    assert not fault.value.reached


async def test_requests_at_once_do_not_wait_for_each_other(connect: Connect, server_tls: ssl.SSLContext) -> None:
    # libcurl may wait for a first connection to tell whether it can be shared by many requests.
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
        fetching = asyncio.gather(*(client.fetch(ORDER) for _ in range(10)))
        for _ in range(10):
            await asyncio.wait_for(waiting.acquire(), 15)
        everybody.set()
        await fetching


@pytest.mark.parametrize("kind", ["curl"], indirect=True)
async def test_libcurl_shares_a_connection_of_http_2(connect: Connect, server_tls: ssl.SSLContext) -> None:
    connections = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        http2 = H2Connection(H2Configuration(client_side=False))
        connections.append(http2)
        http2.initiate_connection()
        while data := await reader.read(65_536):
            for event in http2.receive_data(data):
                if isinstance(event, RequestReceived):
                    http2.send_headers(event.stream_id, [(":status", "200")])
                    http2.send_data(event.stream_id, dict(event.headers)[b":path"], end_stream=True)
            writer.write(http2.data_to_send())
        writer.close()

    server_tls.set_alpn_protocols(["h2"])
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"https://localhost:{port}/{{order_id}}") as client:
            await client.fetch(ORDER)
            fetched = await asyncio.gather(*(client.fetch(f"o{number}") for number in range(50)))

    assert [document.body for document in fetched] == [f"/o{number}".encode() for number in range(50)]
    assert len(connections) == 1
