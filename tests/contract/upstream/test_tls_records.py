"""TLS connections: what arrives in pieces, what somebody on the way has changed, and how they end."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from fakes.upstream import delivered
from listener import connected_to, either, forward, listening
from raw_http import LIMITS, ORDER, Connect, http, serving

from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.http.native import opened
from ingest.upstream.http.transport import Options

LARGE = b'{"id": "' + b"x" * 3_000_000 + b'"}'
# A record of application data whose content nobody can have encrypted.
FORGED = b"\x17\x03\x03\x00\x30" + b"z" * 48
Change = Callable[[bytes], bytes]


def unchanged(sent: bytes) -> bytes:
    return sent


@asynccontextmanager
async def between(port: int, change: Change = unchanged, piece: int = 1 << 16) -> AsyncIterator[tuple[int, list[None]]]:
    """Somebody between client and server, who passes on in small pieces what `change` makes of the server's data.

    Yields the port, and a list with an element for each connection.
    """
    connections: list[None] = []

    async def changed(source: StreamReader, sink: StreamWriter) -> None:
        while chunk := change(await source.read(1 << 16)):
            for at in range(0, len(chunk), piece):
                sink.write(chunk[at : at + piece])
                await sink.drain()
                await asyncio.sleep(0)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        connections.append(None)
        async with connected_to(port) as (from_server, to_server):
            await either(changed(from_server, writer), forward(reader, to_server))

    async with listening(serve) as between:
        yield between, connections


async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
    writer.write(http(b"{}", "Content-Length: 2"))


@pytest.mark.parametrize("piece", [3, 1000])
async def test_a_document_and_its_handshake_may_arrive_in_any_pieces(
    connect: Connect, server_tls: ssl.SSLContext, piece: int
) -> None:
    document = LARGE if piece == 1000 else b'{"id": "536365"}'

    async def send(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(document, f"Content-Length: {len(document)}"))

    async with (
        serving(send, server_tls) as server,
        between(server, piece=piece) as (port, connections),
        connect(f"https://localhost:{port}/{{order_id}}", replace(LIMITS, body=4_000_000, total=30.0)) as client,
    ):
        for _ in range(2):
            assert (await delivered(client.fetch(FetchRequest(ORDER)))).body == document

    assert len(connections) == 1


async def test_a_document_of_which_a_byte_was_changed_on_the_way_is_none(
    connect: Connect, server_tls: ssl.SSLContext
) -> None:
    asked = asyncio.Event()

    async def note(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        asked.set()
        await answer(_, __, writer)

    def change(sent: bytes) -> bytes:
        return sent[:-1] + bytes([sent[-1] ^ 1]) if sent and asked.is_set() else sent

    async with (
        serving(note, server_tls) as server,
        between(server, change) as (port, _),
        connect(f"https://localhost:{port}/{{order_id}}") as client,
    ):
        with pytest.raises(TransientFault):
            await delivered(client.fetch(FetchRequest(ORDER)))


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
