"""A small HTTP server for /metrics and the probes: GET and HEAD, no body, and one answer for each connection.

It is what a process needs that does nothing else; a server library takes as much memory as all of that process. Since every
connection ends with its answer, nothing that follows a request can be taken for another.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from ingest.telemetry.logs import get_logger

_log = get_logger("exposition")

# Of a request with all its headers.
_HEAD_SIZE = 16 * 1024
# For a request to arrive, and for its answer to be read.
_SECONDS = 10.0
_CONNECTIONS = 64
# For answers that are being made when the server stops.
_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        path: without the query.
        accept: the types that the client reads.
        has_body: whether the answer's body is sent.
    """

    path: str
    accept: str
    has_body: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> Self:
        """An answer of one line."""
        return cls(text.encode() + b"\n", status)

    def encoded(self, *, with_body: bool) -> bytes:
        """Return the bytes of the answer."""
        allow = "Allow: GET, HEAD\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n{allow}Connection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (self.body if with_body else b"")


Route = Callable[[Request], Awaitable[Answer]]


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.answer = Answer.text(status.phrase, status)


@asynccontextmanager
async def serving_routes(listener: socket.socket, routes: Mapping[str, Route]) -> AsyncIterator[None]:
    """Answer on `listener` while the block runs; `routes` by path."""
    connections = _Connections(routes)
    server = await asyncio.start_server(connections.accepted, sock=listener, limit=_HEAD_SIZE)
    try:
        yield
    finally:
        server.close()
        await connections.close()


class _Connections:
    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that wait for their client, the longest wait first.
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting[writer] = None
        if len(self._tasks) >= _CONNECTIONS:
            # Clients that say nothing must not keep a probe out, as an orchestrator would kill this process. While all others are
            # being answered, this is the new one.
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
            if longest is writer:
                return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish the answers that are being made; cancel what takes longer."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            self._waiting.pop(writer, None)
            writer.write(await self._answer(head))
            self._waiting[writer] = None
            async with asyncio.timeout(_SECONDS):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except asyncio.LimitOverrunError:
            writer.write(Answer.text("too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE).encoded(with_body=True))
            writer.close()
        except (OSError, EOFError):
            pass  # the client has gone, or takes too long
        finally:
            self._waiting.pop(writer, None)
            if not writer.transport.is_closing() or writer.transport.get_write_buffer_size():
                writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        try:
            request = _read(head)
        except _Refused as refused:
            return refused.answer.encoded(with_body=True)
        route = self._routes.get(request.path)
        if route is None:
            return Answer.text("not found", HTTPStatus.NOT_FOUND).encoded(with_body=request.has_body)
        try:
            answer = await route(request)
        except Exception:  # noqa: BLE001  around one request, so that a bug ends no other; it is logged
            _log.error("request_failed", exc_info=True)
            answer = Answer.text("internal error", HTTPStatus.INTERNAL_SERVER_ERROR)
        return answer.encoded(with_body=request.has_body)


def _read(head: bytes) -> Request:
    """Return what is asked for.

    Raises:
        _Refused: it is no HTTP/1 request, or one with another method.
    """
    first, *fields = head.decode("latin-1").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0"] if target.startswith("/"):
            pass
        case _:
            raise _Refused(HTTPStatus.BAD_REQUEST)
    if method not in {"GET", "HEAD"}:
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    accept = [
        value.strip() for name, _, value in (field.partition(":") for field in fields) if name.lower() == "accept"
    ]
    return Request(target.partition("?")[0], ", ".join(accept), method == "GET")
