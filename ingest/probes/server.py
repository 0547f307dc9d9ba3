"""The HTTP server of a process for /metrics and the probes: the standard library's, with a limit of connections.

prometheus_client imports the same server, so it uses no further memory. The event loop accepts connections and creates the
responses, and a thread for each connection waits for the client. Each connection ends with its response.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from ingest.telemetry.logs import get_logger

_log = get_logger("exposition")

# For the next bytes of a request to arrive, and for the response to be read.
_SECONDS = 10.0
_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Response:
    """The response to one request."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[str], Awaitable[Response]]
"""Returns the response for a value of the header Accept."""


@asynccontextmanager
async def serving_routes(
    listener: socket.socket, routes: Mapping[str, Route], after: float = 0.0
) -> AsyncIterator[None]:
    """Serve `routes`, by path, on `listener` while the block runs, from `after` seconds on."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    server = _Server(listener, routes, loop)
    timer = loop.call_later(after, loop.add_reader, listener.fileno(), server.handle_request)
    try:
        yield
    finally:
        timer.cancel()
        loop.remove_reader(listener.fileno())
        server.server_close()


class _Server(ThreadingHTTPServer):
    # `server_close` joins the threads: a command forks its processes afterwards.
    daemon_threads = False

    def __init__(self, listener: socket.socket, routes: Mapping[str, Route], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._routes = routes
        self._loop = loop
        self._lock = Lock()
        # The oldest first, with the response that is being created, or None while the connection waits for its client.
        self._connections: dict[Any, Future[Response] | None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a new connection. Above the limit, close the oldest that waits for its client.

        Otherwise idle clients could block a probe, and an orchestrator would kill this process. The oldest is the new
        connection itself while responses to all others are being created.
        """
        with self._lock:
            self._connections[request] = None
            if len(self._connections) > _CONNECTIONS:
                oldest = next(each for each, response in self._connections.items() if response is None)
                self._abort(oldest)
        super().process_request(request, client_address)

    def respond(self, connection: socket.socket, path: str, accept: str) -> Response:
        """Return the response for a path, created by the event loop.

        Raises:
            ConnectionAbortedError: the connection has been closed.
            CancelledError: the server is closing.
        """
        route = self._routes.get(path)
        if route is None:
            return Response(b"not found\n", HTTPStatus.NOT_FOUND)
        with self._lock:
            if connection not in self._connections:
                raise ConnectionAbortedError
            future = asyncio.run_coroutine_threadsafe(_created(route, accept), self._loop)
            self._connections[connection] = future
        response = future.result()
        with self._lock:
            if connection in self._connections:
                self._connections[connection] = None
        return response

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the listener and all connections."""
        with self._lock:
            for connection in list(self._connections):
                self._abort(connection)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a bug, and ignore a client that has disconnected and a response that was cancelled."""
        del request, client_address
        if not isinstance(sys.exception(), OSError | CancelledError):
            _log.error("request_failed", exc_info=True)

    def _abort(self, connection: socket.socket) -> None:
        """End the wait of a connection's thread, which then closes the connection."""
        if response := self._connections.pop(connection):
            response.cancel()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS
    # The body follows the head without waiting for the client's acknowledgement.
    disable_nagle_algorithm = True
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def do_GET(self) -> None:
        """Send the response of the path's route."""
        path, accept = self.path.partition("?")[0], self.headers.get("Accept", "")
        response = self.server.respond(self.connection, path, accept)
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        """The header Server, without the interpreter's version."""
        return "order-ingest"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the standard library calls it
        """Log no requests."""


async def _created(route: Route, accept: str) -> Response:
    try:
        return await route(accept)
    except Exception:  # noqa: BLE001  around one request, so that a bug ends no other one, with a log line
        _log.error("request_failed", exc_info=True)
        return Response(b"internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
