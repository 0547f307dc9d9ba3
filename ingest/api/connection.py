"""The HTTP server under the routes: connections, their limits, and what cannot be read as a request."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from ingest.api.problems import Problem
from ingest.api.requests import Request
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
# How long what remains of a body is read after its answer, so that the client reads the answer before a reset.
_LINGERING = 2.0
_LINE_SIZE = 8190
_FIELDS = 100

Answer = Callable[[Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one process spends on its clients.

    Attributes:
        connections: at a time; more are refused.
        idle: seconds between two requests of a connection.
        header: seconds for the header of a request, from its first byte.
    """

    connections: int
    idle: float
    header: float


class Connection(web.RequestHandler):
    """One connection of a client."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request that we can read; what it was is neither answered nor logged."""
        del message
        if status >= 500:
            _log.error("request_failed", exc_info=exc)
            problem = Problem(500, "internal_error", "an unexpected error; it has been logged")
        else:
            problem = Problem(400, "bad_request", "this is not an HTTP request that can be read")
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another answer has been sent")
        response = problem.response()
        response.force_close()
        return response


class HttpServer(web.Server):
    """Makes the connections, and counts them.

    Args:
        answer: answers one request.
        limits: of connections.
    """

    def __init__(self, answer: Answer, limits: ConnectionLimits) -> None:
        super().__init__(
            cast("Any", answer),
            request_factory=self._request,
            keepalive_timeout=limits.idle,
            lingering_time=_LINGERING,
            auto_decompress=False,
            max_line_size=_LINE_SIZE,
            max_field_size=_LINE_SIZE,
            max_headers=_FIELDS,
            access_log=None,
        )
        self.limits = limits
        self._running = asyncio.get_running_loop()

    def __call__(self) -> web.RequestHandler:
        """A connection, for the transport that has just been accepted."""
        return Connection(self, loop=self._running, **self._kwargs)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> Request:
        return Request(message, payload, protocol, writer, task, self._running)
