"""Many requests that begin at once, when no connection is open yet."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from raw_http import LIMITS, http

from ingest.upstream.native_transport import opened
from ingest.upstream.transport import Options, Transport

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
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.at_first_request = self.at_first_request or self.connections
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            writer.close()


@asynccontextmanager
async def running() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.connected, "127.0.0.1", 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


async def send_at_once(transport: Transport, server: Server, count: int) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    assert await asyncio.gather(*(transport.send(url, {}) for _ in range(count))) == [b"{}"] * count


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with opened(Options(LIMITS, False, None)) as made:
        yield made


async def test_the_first_request_is_sent_while_others_wait_for_their_connection(transport: Transport) -> None:
    async with running() as server:
        await send_at_once(transport, server, 200)

    assert server.at_first_request < 50


async def test_a_request_that_waits_for_a_connection_takes_one_that_has_become_free(transport: Transport) -> None:
    async with running() as server:
        await send_at_once(transport, server, 200)

    assert server.connections < 100


async def test_requests_that_are_cancelled_while_they_wait_hold_up_no_others(transport: Transport) -> None:
    async with running() as server:
        waiting = [asyncio.create_task(transport.send(f"http://127.0.0.1:{server.port}/", {})) for _ in range(200)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()

        await send_at_once(transport, server, 20)

    assert server.connections < 30
