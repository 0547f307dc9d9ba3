"""A line between a client and a server on which answers can get lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class DeafConnection:
    """Carries everything, until it goes deaf: connections made before then hear nothing more, though the server does.

    Args:
        server: The URL of the server.
        deaf_after: It goes deaf of itself once a request contains this, before the answer comes through.
    """

    def __init__(self, server: str, *, deaf_after: bytes | None = None) -> None:
        self._server = urlsplit(server)
        self._deaf_after = deaf_after
        self._hearing: set[int] = set()
        self.connections = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """The URL of its near end."""
        serving: set[asyncio.Task[None]] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.create_task(self._carry(self.connections, reader, writer))
            serving.add(task)

        near = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = near.sockets[0].getsockname()[1]
        try:
            yield self._server._replace(netloc=f":{self._server.password}@127.0.0.1:{port}").geturl()
        finally:
            near.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    def go_deaf(self) -> None:
        """Let nothing more through to the clients that are connected now."""
        self._hearing.clear()

    async def _carry(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._hearing.add(number)

        async def requests() -> None:
            while data := await reader.read(1 << 16):
                if self._deaf_after and self._deaf_after in data:
                    self._deaf_after = None
                    self._hearing.discard(number)
                far_writer.write(data)

        async def answers() -> None:
            while data := await far_reader.read(1 << 16):
                if number in self._hearing:
                    writer.write(data)

        directions = [asyncio.create_task(requests()), asyncio.create_task(answers())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, far_writer):
                end.close()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, writer.wait_closed(), far_writer.wait_closed(), return_exceptions=True)
