"""Many requests that begin at once, when no connection is open yet."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from listener import listening
from raw_http import LIMITS, http, serving

from ingest.upstream.http.native import opened
from ingest.upstream.http.transport import NoResponse, Options, Transport

ANSWER = http(b"{}", "Content-Length: 2")


@dataclass
class Server:
    """Counts the connections to it.

    Attributes:
        at_first_request: connections that were open when the first request arrived.
    """

    port: int = 0
    connections: int = 0
    at_first_request: int = 0

    async def connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        while await reader.readuntil(b"\r\n\r\n"):
            self.at_first_request = self.at_first_request or self.connections
            writer.write(ANSWER)


@asynccontextmanager
async def running() -> AsyncIterator[Server]:
    server = Server()
    async with listening(server.connected) as server.port:
        yield server


async def send_at_once(transport: Transport, server: Server, count: int) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    assert await asyncio.gather(*(transport.send(url, {}) for _ in range(count))) == [b"{}"] * count


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with opened(Options(LIMITS, False, None)) as made:
        yield made


async def test_requests_that_are_cancelled_while_they_wait_hold_up_no_others(transport: Transport) -> None:
    async with running() as server:
        waiting = [asyncio.create_task(transport.send(f"http://127.0.0.1:{server.port}/", {})) for _ in range(200)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()

        await send_at_once(transport, server, 20)

    assert server.connections < 30


@pytest.mark.parametrize("is_tls", [False, True])
async def test_requests_that_wait_for_a_connection_end_when_the_transport_is_closed(
    server_tls: ssl.SSLContext, *, is_tls: bool
) -> None:
    async def answer_first(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        if b"/first" in head:
            writer.write(ANSWER)

    async with serving(answer_first, server_tls if is_tls else None) as port:
        url = f"{'https' if is_tls else 'http'}://localhost:{port}"
        async with opened(Options(LIMITS, is_tls, None)) as transport:
            await transport.send(f"{url}/first", {})
            waiting = [asyncio.create_task(transport.send(f"{url}/", {})) for _ in range(50)]
            await asyncio.sleep(0)

        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 15)

    assert {type(outcome) for outcome in outcomes} == {NoResponse}
