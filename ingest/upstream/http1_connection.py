"""One connection to the external API: a request, its response, the next request.

The connection is used again only after a response that ended as HTTP says, with nothing after it. Whoever cancels a request
aborts its connection.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ingest.upstream.http1_response import Malformed, ResponseParser
from ingest.upstream.transport import NoResponse, TooLarge


class ClosedEarly(NoResponse):
    """A connection that was used before has been closed without a byte of a response: the server did not want to keep it."""


class Http1Connection(asyncio.Protocol):
    """A connection; made by `loop.create_connection`.

    Args:
        body_limit: most bytes of a decompressed body.
        on_end: called when the connection has been closed.

    Attributes:
        heard_at: when something was last sent or received, by the loop's clock.
        deadline: until when the request has to be answered.
        is_open: whether it is connected.
        is_reused: whether the request is not its first.
    """

    def __init__(self, body_limit: int, on_end: Callable[["Http1Connection"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = ResponseParser(body_limit)
        self._on_end = on_end
        self._transport: Any = None
        self._answered: asyncio.Future[ResponseParser] | None = None
        self.heard_at = self.deadline = 0.0
        self.is_open = self.is_reused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def request(self, head: bytes, deadline: float) -> "asyncio.Future[ResponseParser]":
        """Send a request; the result has the complete response until the next request."""
        now = self._loop.time()
        self.heard_at, self.deadline = now, deadline
        answered = self._answered = self._loop.create_future()
        self._transport.write(head)
        return answered

    def ready(self) -> bool:
        """Prepare for the next request; return whether there may be one."""
        transport = self._transport
        if not (self.is_open and self._parser.can_continue) or transport.is_closing():
            return False
        if transport.get_write_buffer_size():
            return False  # answered before the whole request was sent
        self.is_reused = True
        self._parser.expect()
        return True

    def abort(self) -> None:
        """Close at once; a request that waits is left to its caller."""
        self._answered = None
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: Exception) -> None:
        """Close at once, and end the request that waits with this error."""
        answered, self._answered = self._answered, None
        if self._transport is not None:
            self._transport.abort()
        if answered is not None and not answered.done():
            answered.set_exception(error)

    # ---- called by the event loop ----

    def data_received(self, data: bytes) -> None:
        """A part of the response; with nothing asked for, the connection is of no use."""
        if self._answered is None:
            self._transport.abort()
            return
        self.heard_at = self._loop.time()
        parser = self._parser
        try:
            parser.feed(data)
        except Malformed as error:
            self.fail(NoResponse(str(error)))
            return
        except TooLarge as error:
            self.fail(error)
            return
        if parser.is_complete or parser.is_declined:
            self._finish()

    def eof_received(self) -> bool:
        """The server has sent everything: the connection is closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by either side."""
        self.is_open = False
        if self._answered is not None:
            if exc is None and self._parser.end_of_file():
                self._finish()
            else:
                self.fail(self._lost(exc))
        self._on_end(self)

    def _finish(self) -> None:
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            answered.set_result(self._parser)

    def _lost(self, error: Exception | None) -> NoResponse:
        if not self._parser.has_begun:
            kind = ClosedEarly if self.is_reused else NoResponse
            return kind("the connection was closed before the response")
        if isinstance(error, OSError) and error.strerror:
            return NoResponse(f"the connection failed: {error.strerror}")
        return NoResponse("the response body cannot be read: it ended early")
