"""Detects clients that send a request, or read a response, very slowly."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

# A client is slow if it takes longer to send a piece of a request, or to read a piece of a response.
_RECEIVED = 8 * 1024
SENT = 32 * 1024
"""Bytes of a response that are sent together."""
_PER_SECOND = 16 * 1024


class ClientPace:
    """The pace of one client.

    Attributes:
        waits: Whether a request waits for its client to send or to read.
    """

    __slots__ = ("_bytes", "_piece", "_since", "_waited_until", "waits")

    def __init__(self) -> None:
        self.waits = False
        self._piece = _RECEIVED
        # Bytes of the current piece, and the time when it began.
        self._bytes = 0
        self._since = self._waited_until = _now()

    @property
    def is_slow(self) -> bool:
        """Whether the current piece takes too long, if the client is the one who is waited for."""
        return _now() - self._since > self._piece / _PER_SECOND

    def begin(self) -> None:
        """The first byte of a request has come."""
        self._bytes, self._since = 0, _now()

    def received(self, size: int) -> None:
        """The client has sent this number of bytes."""
        self._bytes += size
        if self._bytes >= _RECEIVED and self._piece == _RECEIVED:
            self._bytes, self._since = 0, _now()

    def sent(self) -> None:
        """The client has read a piece of the response."""
        self._since = _now()

    def handle(self) -> None:
        """The header is complete. The server handles the request until it waits for its client."""
        self._waited_until = _now()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """The block waits for the client to send. The time since the last such block was the server's."""
        self._since += _now() - self._waited_until
        self.waits = True
        try:
            yield
        finally:
            self.waits, self._waited_until = False, _now()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """The block waits for the client to read."""
        self.waits, self._piece, self._since = True, SENT, _now()
        try:
            yield
        finally:
            self.waits, self._piece = False, _RECEIVED


def _now() -> float:
    return asyncio.get_running_loop().time()
