"""Servers in a test's event loop, and connections to other servers, which end with the test.

A connection that is still open when the event loop ends is reported later, as an error of whichever test runs when its
memory is reclaimed.
"""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port of a server that closes each connection when `serve` returns, or else at exit.

    Errors:
        the error of `serve`, at exit, except for errors of connections that the client ended.
    """
    connections: dict[asyncio.Task[None], StreamWriter] = {}

    async def handle(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()

    def accept(reader: StreamReader, writer: StreamWriter) -> None:
        connections[asyncio.create_task(handle(reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task, writer in connections.items():
            task.cancel()
            # Closing would wait until unsent data are sent. Python 3.11.2 raises this error for a closed connection.
            with suppress(AttributeError):
                writer.transport.abort()
        ended = await asyncio.gather(*connections, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def refuse_handshake(reader: StreamReader, _: StreamWriter) -> None:
    """Close the connection when TLS begins, without an alert. Unread data would cause a reset."""
    head = await reader.readexactly(5)
    await reader.readexactly(int.from_bytes(head[3:]))


@asynccontextmanager
async def connected_to(port: int, host: str = "127.0.0.1") -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    """A connection to another server."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def forward(source: StreamReader, sink: StreamWriter) -> None:
    """Forward all data until end of file."""
    while chunk := await source.read(1 << 16):
        sink.write(chunk)
        await sink.drain()


async def either(*directions: Coroutine[Any, Any, None]) -> None:
    """Run these until one of them ends, and cancel the others."""
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
