"""TLS on one connection: it stands between the socket's transport and an `Http1Connection`, whose transport it is.

Event loops have a layer of their own. This one costs less: it leaves out the flow control, reads only what has arrived, and
needs no buffer for each connection. It also offers the session of an earlier connection, for which event loops have no argument.
"""

import asyncio
import ssl
from functools import partial
from typing import Any, cast

from ingest.upstream.http.http1_connection import Http1Connection
from ingest.upstream.http.tls_sessions import HostSession

# No record holds more (RFC 8446, section 5.1), and one read returns at most one record.
_LARGEST_RECORD = 16 * 1024


class TlsConnection(asyncio.Protocol):
    """The TLS part of a connection; made by `loop.create_connection` without TLS.

    Args:
        upper: what is told of decrypted data; it is connected after the handshake.
        context: the client's TLS settings.
        host: the name that the certificate has to be valid for.
        session: what is known of the host's sessions.
    """

    __slots__ = (
        "_context",
        "_error",
        "_host",
        "_incoming",
        "_is_ended",
        "_is_secure",
        "_is_sought",
        "_offered",
        "_outgoing",
        "_session",
        "_tls",
        "_transport",
        "_unsent",
        "_upper",
        "_waiter",
    )

    def __init__(self, upper: Http1Connection, context: ssl.SSLContext, host: str, session: HostSession) -> None:
        self._upper = upper
        self._context = context
        self._host = host
        self._session = session
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._transport: Any = None
        self._tls: Any = None  # an `ssl.SSLObject`, from when the socket is connected
        self._offered: ssl.SSLSession | None = None
        # The handshake has ended; the server has ended the connection as TLS says; a session is looked for.
        self._is_secure = self._is_ended = self._is_sought = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unsent = b""

    async def secured(self) -> Http1Connection:
        """Return the upper connection after the handshake; if that fails or is cancelled, everything is closed.

        Raises:
            OSError: the handshake has failed.
            ValueError: no certificate can be valid for the host name.
        """
        if self._error is not None:
            raise self._error
        if not self._is_secure:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except BaseException:
                self.abort()
                raise
        return self._upper

    # ---- called by the upper connection ----

    def write(self, data: bytes) -> None:
        """Encrypt and send. No more may be written while something is unsent."""
        try:
            self._tls.write(data)
        except ssl.SSLWantReadError:
            # TLS 1.2: the server renegotiates, and the data is sent when it has done its part.
            self._unsent = data
        except ssl.SSLError:
            self.abort()
        else:
            self._transport.write(self._outgoing.read())

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes have not been sent."""
        size: int = self._transport.get_write_buffer_size()
        return size + len(self._unsent)

    # ---- called by the event loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        offered = self._offered = self._session.offer()
        self._is_sought = self._session.is_sought
        try:
            self._tls = self._context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=self._host, session=offered
            )
        except (ssl.SSLError, ValueError) as error:
            self._end_handshake(error)
        else:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        """Decrypt what has arrived, as far as it is complete."""
        incoming = self._incoming
        incoming.write(data)
        if not self._is_secure:
            self._shake_hands()
            if not self._is_secure:
                return
        received, is_last = self._decrypted()
        if self._is_sought:
            self._is_sought = self._session.look_at(self._tls, self._offered, is_last=bool(received))
        if self._unsent or self._outgoing.pending:
            self._send_pending()
        if is_last:
            self._upper.eof_received()
        if received:
            self._upper.data_received(received)
        if is_last:
            self.abort()

    def eof_received(self) -> bool:
        """The socket will be closed: nothing may be sent any more."""
        self._upper.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed. Only TLS can say that the server has ended the connection: others can close a socket, too."""
        if self._is_secure:
            self._upper.connection_lost(exc or self._error or (None if self._is_ended else EOFError()))
        else:
            self._end_handshake(exc or ConnectionResetError())
        self._transport = None

    # ----

    def _decrypted(self) -> tuple[bytes, bool]:
        """Return what can be decrypted, and whether nothing may follow: the server has ended, or somebody has changed something."""
        read, incoming = self._tls.read, self._incoming
        received: list[bytes] = []
        is_last = False
        # What is decrypted is shorter. A read allocates what it may return, and as much as for the largest record takes longer.
        size = min(incoming.pending, _LARGEST_RECORD)
        try:
            while size:
                part: bytes = read(size)
                if not part:
                    is_last = self._is_ended = True
                    break
                if not incoming.pending and len(part) < size and not received:
                    return part, False  # nearly always: all of one record
                received.append(part)
                # More may be left of a record whose beginning had arrived earlier.
                size = _LARGEST_RECORD if len(part) == size else min(incoming.pending, _LARGEST_RECORD)
        except ssl.SSLWantReadError:
            pass  # the rest of a record is to come
        except ssl.SSLError as error:
            self._error = error.with_traceback(None)  # that one refers to this object
            is_last = True
        return b"".join(received), is_last

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_pending()
        except ssl.SSLError as error:
            self._send_pending()  # an alert, which says why
            self._end_handshake(error)
        else:
            self._is_secure = True
            self._send_pending()
            self._upper.on_answered = partial(self._session.answered, self._tls, self._offered)
            if self._offered is not None:
                self._upper.on_dropped = partial(self._session.connection_failed, self._offered)
            self._upper.connection_made(cast("asyncio.Transport", self))
            self._wake(None)

    def _end_handshake(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._wake(error)
        if self._transport is not None:
            self._transport.close()

    def _wake(self, error: Exception | None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    def _send_pending(self) -> None:
        """Send what TLS itself has to say, and what had to wait for its end."""
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            self.write(unsent)
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())
