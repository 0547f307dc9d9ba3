"""A line between a client and a server on which answers can get lost."""

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from listener import connected_to, either, listening


class DeafConnection:
    """Carries everything until it goes deaf. Then connections that were made before receive nothing, and the server still does.

    Args:
        server: The URL of the server.
    """

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server)
        self._hearing: set[int] = set()
        self._connections = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """The URL of its near end."""
        async with listening(self._carry) as port:
            yield self._server._replace(netloc=f":{self._server.password}@127.0.0.1:{port}").geturl()

    def go_deaf(self) -> None:
        """Let nothing more through to the clients that are connected now."""
        self._hearing.clear()

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        self._hearing.add(number)
        host, port = self._server.hostname, self._server.port
        assert host is not None
        assert port is not None

        async with connected_to(port, host) as (far_reader, far_writer):

            async def requests() -> None:
                while data := await reader.read(1 << 16):
                    far_writer.write(data)

            async def answers() -> None:
                while data := await far_reader.read(1 << 16):
                    if number in self._hearing:
                        writer.write(data)

            await either(requests(), answers())
