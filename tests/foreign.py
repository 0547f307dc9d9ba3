"""Programs that listen on the port of an expected Redis."""

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator


async def echo(reader: StreamReader, writer: StreamWriter) -> None:
    """Echo, like a socket that is connected to itself."""
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)


async def http(reader: StreamReader, writer: StreamWriter) -> None:
    """Respond to any input like a web server."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def greeting(reader: StreamReader, writer: StreamWriter) -> None:
    """Send the first line, like a mail server."""
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


async def _commands(reader: StreamReader) -> AsyncIterator[list[bytes]]:
    while line := await reader.readline():
        parts = []
        for _ in range(int(line[1:])):
            length = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(length + 2))[:-2])
        yield parts
