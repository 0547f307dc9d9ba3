"""Serves HTTP/1.x on one connection.

The parser calls back once per request. The response's bytes exist already and are written in the same turn of the
event loop or, if there is a latency, when a timer expires. Requests do not need a task. Pipelined requests are
answered in order, so that each waits as an `Exchange` until the previous responses are written.
"""

import asyncio
import socket
import struct
from asyncio import BaseTransport, Protocol, Transport
from collections import deque
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote_to_bytes, urlsplit

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from ingest.lab.upstream.catalogue import ORDERS
from ingest.lab.upstream.control import Control
from ingest.lab.upstream.credentials import TOKEN
from ingest.lab.upstream.listing import LIST, posted_target
from ingest.lab.upstream.responses import Ending, Response, problem, uncounted, with_connection, without_body
from ingest.lab.upstream.site import Site
from ingest.lab.upstream.wheel import Wheel

HEAD_LIMIT = 16 << 10
"""Length up to which a request's head is always read. From twice this length on, it is always rejected."""
BODY_LIMIT = 16 << 20
"""Length up to which a request's body is read."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger for zero seconds, so that the kernel sends RST instead of FIN


class Exchange:
    """One request that waits for its response or for previous responses."""

    __slots__ = ("_connection", "ready", "response")

    def __init__(self, connection: "Connection", response: Response | None) -> None:
        self._connection = connection
        self.response = response
        self.ready = False

    def due(self) -> None:
        """Write the response as soon as the previous responses are written."""
        self.ready = True
        self._connection.flush()


class Connection(Protocol):
    """Reads requests, passes them to the site or the control routes, and writes the responses in order.

    An open connection is in the `roster`.
    """

    def __init__(self, site: Site, control: Control, wheel: Wheel, roster: "Roster") -> None:
        self._site = site
        self._control = control
        self._wheel = wheel
        self._roster = roster
        self._waiting: deque[Exchange] = deque()
        self._reads_on = True  # until the last request
        self._writes_on = True  # until the last response
        self._in_head = False
        self._began = False
        self._head_size = 0
        self._parser = HttpRequestParser(self)

    # -- called by the event loop ---------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        """Start reading."""
        self._transport = cast("Transport", transport)
        self._site.stats.open_connections += 1
        self._roster.join(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the event loop's signature
        """Count requests without a response. A client that closes its sending half counts as disconnected."""
        self._reads_on = self._writes_on = False
        for exchange in self._waiting:
            if exchange.response is None or exchange.response.label is not None:
                self._site.stats.ended("abandoned")
        self._waiting.clear()
        self._site.stats.open_connections -= 1
        self._roster.leave(self)

    def data_received(self, data: bytes) -> None:
        """Parse the data in slices, so that a head that is too long is detected even if it arrives in one piece."""
        if len(data) <= HEAD_LIMIT:
            self._parse(data)
        else:
            for start in range(0, len(data), HEAD_LIMIT):
                self._parse(data[start : start + HEAD_LIMIT])

    def pause_writing(self) -> None:
        """Stop reading requests from a client that does not read responses."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read requests again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # -- called by the parser -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Reset the state of the previous request."""
        self._url = b""
        self._authorization: bytes | None = None
        self._credential_header = self._site.credentials.header
        self._names_connection = False
        self._body = bytearray()
        self._in_head = self._began = True
        self._head_size = 0

    def on_url(self, part: bytes) -> None:
        """Collect the target, which may arrive in parts."""
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the header with the credential, and whether there is a Connection header."""
        size, credential = len(name), self._credential_header
        if size == len(credential) and name.lower() == credential:
            self._authorization = value
        elif size == 10 and name.lower() == b"connection":
            self._names_connection = True

    def on_headers_complete(self) -> None:
        """Stop measuring the head."""
        self._in_head = False

    def on_body(self, part: bytes) -> None:
        """Collect the body, up to a limit."""
        self._body += part
        if len(self._body) > BODY_LIMIT:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {BODY_LIMIT} bytes")

    def on_message_complete(self) -> None:
        """Find and write the response to the request."""
        if not self._reads_on:
            return
        method = self._parser.get_method()
        path, query = _split(self._url)
        if path == LIST and method == b"POST":
            path, query = posted_target(bytes(self._body))
        response, latency = self._found(method, path, query)
        if response is not None and method == b"HEAD":
            response = without_body(response)
        if not self._parser.should_keep_alive() or self._parser.should_upgrade():
            self._reads_on = False
            response = response and with_connection(response, b"close")
        elif response is not None and self._names_connection and self._parser.get_http_version() == "1.0":
            response = with_connection(response, b"keep-alive")
        self._respond(response, latency)

    def _found(self, method: bytes, path: bytes, query: bytes) -> tuple[Response | None, float]:
        site = self._site
        # Some APIs use POST to request an order.
        reads = method in {b"GET", b"HEAD", b"POST"}
        if path.startswith(ORDERS) and reads:
            return site.order(path, self._authorization)
        if path == LIST and reads:
            return site.list_orders(query, self._authorization)
        if path == TOKEN and method == b"POST":
            return site.authority.response(self._authorization, bytes(self._body))
        return self._control.response(method, path, query, bytes(self._body)), 0.0

    # -- our own -------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        if not self._reads_on:
            return
        self._began = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # answered as a plain request, which was the last
        except HttpParserCallbackError:
            raise  # a bug of ours, not of the client
        except HttpParserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request is not valid HTTP/1.x: {error}")
        if self._in_head and not self._began:
            self._head_size += len(data)
            if self._head_size >= HEAD_LIMIT:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too long")

    def _refuse(self, status: int, detail: str) -> None:
        if self._reads_on:
            self._reads_on = False
            self._respond(with_connection(uncounted(problem(status, detail)), b"close"), 0.0)

    def _respond(self, response: Response | None, latency: float) -> None:
        if latency <= 0 and response is not None and not self._waiting:
            self._write(response)
            return
        exchange = Exchange(self, response)
        self._waiting.append(exchange)
        if response is None:
            return  # never ready, so that it blocks later responses
        if latency > 0:
            self._wheel.after(latency, exchange)
        else:
            exchange.ready = True

    def flush(self) -> None:
        """Write the responses that are due, up to the first that is not."""
        waiting = self._waiting
        while waiting and waiting[0].ready and self._writes_on:
            response = waiting.popleft().response
            if response is not None:
                self._write(response)

    def _write(self, response: Response) -> None:
        payload, label, ending = response
        if payload:
            self._transport.write(payload)
        if label is not None:
            self._site.stats.ended(label)
        if ending is not Ending.KEEP:
            self._end(ending)

    def _end(self, ending: Ending) -> None:
        self._reads_on = self._writes_on = False
        if ending is Ending.CLOSE:
            self._transport.close()
        else:
            self._reset()

    def _reset(self) -> None:
        # asyncio has no other way to send RST on a TCP socket.
        tcp = self._transport.get_extra_info("socket")
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def abort(self) -> None:
        """Close the connection immediately and drop requests in flight."""
        self._transport.abort()


class Roster:
    """The open connections of one server."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._closing = False
        self._empty = asyncio.Event()

    def join(self, connection: Connection) -> None:
        """Add a new connection, or abort it if the server is closing."""
        self._open.add(connection)
        if self._closing:
            connection.abort()

    def leave(self, connection: Connection) -> None:
        """Remove a lost connection."""
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    async def close(self) -> None:
        """Close every connection, and return when all are closed."""
        self._closing = True
        self._empty.clear()
        for connection in self._open:
            connection.abort()
        if self._open:
            await self._empty.wait()


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Return the percent-decoded path of a request target, and its query."""
    if b"%" not in url and b"?" not in url and url.startswith(b"/"):
        return url, b""
    parts = urlsplit(url)
    return unquote_to_bytes(parts.path), parts.query
