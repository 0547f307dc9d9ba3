"""An HTTP server that sends scripted responses, valid or not, and records requests."""

import ssl
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from listener import listening

Answer = bytes | Callable[["Received"], bytes]
"""The bytes of a response, after which the connection is closed. Empty bytes close it without a response."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class ScriptedServer:
    """The server, which repeats its last response.

    Attributes:
        silent: whether connections stay open after a response without another byte.
    """

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    received: list[Received] = field(default_factory=list)
    silent: bool = False

    def answer(self, *answers: Answer) -> None:
        """The responses to the next requests."""
        self.answers = deque(answers)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *pairs = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (pair.partition(":") for pair in pairs)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(line, headers, body)
        self.received.append(received)
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        writer.write(answer if isinstance(answer, bytes) else answer(received))
        await writer.drain()
        if self.silent:
            await reader.read()


@asynccontextmanager
async def scripted_server(context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server on a free port."""
    scripted = ScriptedServer()
    async with listening(scripted.serve, context) as port:
        scripted.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
        yield scripted


def http(status: int, body: bytes = b"", content_type: str = "application/json", **headers: str) -> bytes:
    """A well-formed answer."""
    told = {"content-type": content_type, "content-length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
