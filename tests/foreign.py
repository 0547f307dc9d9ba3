"""Programs that are not the Redis that somebody expects at their port."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answer = Callable[[StreamReader, StreamWriter], Awaitable[None]]


async def echo(reader: StreamReader, writer: StreamWriter) -> None:
    """Say what was said, as a socket does that is connected to itself."""
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)


async def http(reader: StreamReader, writer: StreamWriter) -> None:
    """Answer whatever comes as a web server does."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def greeting(reader: StreamReader, writer: StreamWriter) -> None:
    """Speak first, as a mail server does."""
    writer.write(b"220 mail ready\r\n")
    await reader.read(1)


_HELLO = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"


async def ones(reader: StreamReader, writer: StreamWriter) -> None:
    """Shake hands as Redis does, and answer every command after that with the number one."""
    async for command in _commands(reader):
        writer.write(_HELLO if command[0].upper() == b"HELLO" else b":1\r\n")


async def words(reader: StreamReader, writer: StreamWriter) -> None:
    """The same with a list of words."""
    async for command in _commands(reader):
        writer.write(_HELLO if command[0].upper() == b"HELLO" else b"*2\r\n$4\r\nsome\r\n$4\r\nword\r\n")


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[int]:
    """A server that answers like this; its port."""
    served: set[asyncio.Task[None]] = set()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            await answer(reader, writer)
            await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            served.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in served:
            task.cancel()
        if served:
            await asyncio.wait(set(served))


async def _commands(reader: StreamReader) -> AsyncIterator[list[bytes]]:
    while line := await reader.readline():
        parts = []
        for _ in range(int(line[1:])):
            length = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(length + 2))[:-2])
        yield parts
