"""One connection to the external API: a request, its response, the next request.

The connection is used again only after a response that ended as HTTP requires, without data after it. A request that is cancelled
ends its connection, and so does an error whose body has not arrived with its head.
"""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any, cast

from ingest.upstream.http.content_coding import Compressed
from ingest.upstream.http.heavy_bodies import HeavyBodies
from ingest.upstream.http.http1_response import Malformed, ResponseParser
from ingest.upstream.http.tls_context import is_alert, reason_of_tls
from ingest.upstream.http.transport import NoDocument, NoResponse, OnHead, TooLarge

_CLOSED_EARLY = "the connection was closed before the response"


class ClosedEarly(NoResponse):
    """A connection that was used before has been closed without a byte of a response, because the server did not keep it."""


class Http1Connection(asyncio.Protocol):
    """A connection, made by `loop.create_connection`.

    Args:
        body_limit: most bytes of a decompressed body.
        error_body: see `Options`.
        idle: where the connection puts itself when the next request may be sent.
        on_end: called when the connection has been closed.
        heavy: turns of large bodies.

    Attributes:
        heard_at: when something was last sent or received, by the loop's clock.
        retires_at: from when on it is not used again.
        is_open: whether requests may be sent.
    """

    def __init__(
        self,
        body_limit: int,
        error_body: int,
        idle: list["Http1Connection"],
        on_end: Callable[["Http1Connection"], None],
        heavy: HeavyBodies,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = ResponseParser(body_limit, error_body)
        self._idle = idle
        self._on_end = on_end
        self._heavy = heavy
        self._on_head: OnHead | None = None
        self._transport: Any = None
        self._answered: asyncio.Future[bytes | Compressed] | None = None
        self._deadline = math.inf
        self.heard_at = 0.0
        self.retires_at = math.inf
        self.is_open = self._is_reused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def request(
        self, sent: bytes, now: float, deadline: float, on_head: OnHead | None
    ) -> asyncio.Future[bytes | Compressed]:
        """Send a request, and return the future of its document. The times are by the loop's clock."""
        self.heard_at, self._deadline, self._on_head = now, deadline, on_head
        answered = self._answered = self._loop.create_future()
        self._transport.write(sent)
        return answered

    def cancel(self, answered: asyncio.Future[bytes | Compressed]) -> None:
        """Close immediately if this request is running. The connection may have another one by now."""
        if self._answered is answered:
            self.abort()

    def is_late(self, now: float, read_timeout: float) -> bool:
        """Whether a response is overdue."""
        return self._answered is not None and now > min(self._deadline, self.heard_at + read_timeout)

    def is_unused(self, since: float) -> bool:
        """Whether no request has been sent since then."""
        return self._answered is None and self.heard_at < since

    def abort(self) -> None:
        """Close immediately, and leave a waiting request to its caller."""
        self._answered = None
        self._close()

    def fail(self, error: Exception) -> None:
        """Close immediately, and end the waiting request with this error, or with a response that only lacks a part of an error body."""
        if self._parser.is_error and not self._parser.is_declined:
            self._answer()
        answered, self._answered = self._answered, None
        self._close()
        if answered is not None and not answered.done():
            answered.set_exception(error)

    # ---- called by the event loop ----

    def data_received(self, data: bytes) -> None:
        """A part of the response. Without a request, the connection is useless."""
        if self._answered is None:
            self._close()
            return
        parser = self._parser
        self.heard_at = self._loop.time()
        try:
            parser.feed(data)
        except Malformed as error:
            self.fail(NoResponse(str(error)))
            return
        except TooLarge:
            self.fail(TooLarge())  # the original refers to the data, see `_answer`
            return
        if parser.is_complete or parser.is_declined:
            self._answer()
            self._continue()
        elif parser.is_heavy:
            self._transport.pause_reading()
            self._heavy.wait(self._resume)

    def eof_received(self) -> bool:
        """The server has sent everything, and the connection is closed."""
        self.is_open = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side, without an error if the server has ended the connection."""
        self.is_open = False
        if self._answered is not None:
            if exc is None and self._parser.end_of_file():
                self._answer()
            else:
                self.fail(self._lost(exc))
        self._parser.forget()
        if self in self._idle:
            self._idle.remove(self)
        self._on_end(self)
        # TLS below it holds buffers of half a megabyte, and this connection is freed late, like its parser.
        self._transport = None

    # ----

    def _resume(self) -> None:
        if self.is_open:
            self._transport.resume_reading()

    def _answer(self) -> None:
        """End the request with the response."""
        answered, self._answered = self._answered, None
        parser = self._parser
        if answered is None or answered.done():
            return
        try:
            document = parser.document()
            if self._on_head is not None:
                self._on_head(parser.status, parser.named_headers())
        except NoDocument as error:
            # The task that waits for it is part of a reference cycle with it. Its traceback would keep the body in there.
            answered.set_exception(error.with_traceback(None))
        else:
            answered.set_result(document)

    def _continue(self) -> None:
        """Wait for the next request, if there may be one."""
        # With something unsent, it was answered before the whole request had been sent.
        if self.is_open and self._parser.can_continue and not self._transport.get_write_buffer_size():
            self._is_reused = True
            self._parser.expect()
            self._idle.append(self)
        else:
            self._close()

    def _close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _lost(self, error: Exception | None) -> NoResponse:
        has_begun = self._parser.has_begun
        if self._is_reused and not has_begun:
            return ClosedEarly(_CLOSED_EARLY)
        if isinstance(error, ssl.SSLError):
            return NoResponse(
                f"the connection failed: {reason_of_tls(error)}", reached=has_begun or not is_alert(error)
            )
        if not has_begun:
            return NoResponse(_CLOSED_EARLY)
        if isinstance(error, OSError) and error.strerror:
            return NoResponse(f"the connection failed: {error.strerror}")
        return NoResponse("the response body cannot be read: it ended early")
