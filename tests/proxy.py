"""A TCP proxy that misbehaves on demand, like a faulty network.

It runs in a separate thread with its own event loop, so that all tests can use it and it continues while they block.
"""

import asyncio
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

from ingest.lab.servers.server import free_port

_TIMEOUT = 10.0
_CHUNK = 64 * 1024
# Closing then sends a reset and drops unsent data.
_ABORTIVE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections on a port of 127.0.0.1 to another port. A context manager.

    Changes apply to all current and future connections.

    Attributes:
        port: the port on which it listens during its whole life.
    """

    def __init__(self, target: int, on_request: Callable[[bytes], None] = lambda _: None) -> None:
        """Forward to the port `target`, and call `on_request` with all data from clients when it arrives."""
        self.port = free_port()
        self._target = target
        self._on_request = on_request
        self._delay = 0.0
        self._open: set[StreamWriter] = set()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name=f"proxy-{target}", daemon=True)

    # -- actions of tests ------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset all connections and return their number. New connections are accepted."""
        return self._do(self._cut())

    def freeze(self) -> None:
        """Stop forwarding in both directions. Connections stay open, and new ones are accepted without forwarding."""
        self._do(self._set_flowing(on=False))

    def thaw(self) -> None:
        """Forward again, beginning with the held data."""
        self._do(self._set_flowing(on=True))

    def refuse(self) -> None:
        """Refuse new connections. Open connections continue."""
        self._do(self._refuse())

    def accept(self) -> None:
        """Take new connections again."""
        self._do(self._accept())

    def lead_to(self, target: int) -> None:
        """Lead new connections to another port. Open connections are unchanged."""
        self._target = target

    def delay(self, seconds: float) -> None:
        """Delay all data in both directions by this time, or stop that with 0."""
        self._delay = seconds

    @property
    def connections(self) -> int:
        """How many connections from clients are open."""
        return len(self._handlers)

    # -- its life -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_TIMEOUT), "the proxy did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_TIMEOUT)
        assert not self._thread.is_alive(), "the proxy did not stop"

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(_TIMEOUT)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._flowing = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        await self._accept()
        self._ready.set()
        await self._stop.wait()
        await self._refuse()
        self._flowing.set()
        while self._handlers:
            await self._cut()
            await asyncio.wait(self._handlers, timeout=0.1)

    # -- in its thread --------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=1024)

    async def _refuse(self) -> None:
        self._server.close()

    async def _set_flowing(self, *, on: bool) -> None:
        (self._flowing.set if on else self._flowing.clear)()

    async def _cut(self) -> int:
        count = len(self._handlers)
        for writer in self._open:
            _reset(writer)
        return count

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self._open.add(writer)
        try:
            await self._flowing.wait()
            await self._forward(reader, writer)
        finally:
            writer.close()
            self._open.discard(writer)
            self._handlers.discard(task)

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        self._open.add(to_target)
        try:
            await asyncio.gather(
                self._pump(reader, to_target, writer, self._on_request),
                self._pump(from_target, writer, to_target, lambda _: None),
            )
        finally:
            to_target.close()
            self._open.discard(to_target)

    async def _pump(
        self, source: StreamReader, sink: StreamWriter, origin: StreamWriter, on_chunk: Callable[[bytes], None]
    ) -> None:
        """Forward one direction until the end. A reset on one side is forwarded to the other."""
        try:
            while chunk := await source.read(_CHUNK):
                on_chunk(chunk)
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                sink.write(chunk)
                await sink.drain()
            await self._flowing.wait()
            with suppress(OSError):
                sink.write_eof()
        except OSError:
            _reset(sink)
            _reset(origin)


def _reset(writer: StreamWriter) -> None:
    """Close immediately with a reset."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTIVE)
    writer.transport.abort()
