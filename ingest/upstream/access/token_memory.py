"""Keeps the tokens of a source in memory, for servers that never replace the refresh token."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from ingest.domain.fetch.token_store import Stored


class TokenMemory:
    """A `TokenStore` for one process, with its lock, a `HeldStore`."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._content: bytes | None = None

    @property
    def stored(self) -> Stored:
        """See `HeldStore`."""
        return Stored(self._content, self._now().timestamp())

    async def read(self) -> Stored:
        """See `TokenStore`."""
        return self.stored

    @asynccontextmanager
    async def lock(self) -> AsyncIterator["TokenMemory"]:
        """See `TokenStore`."""
        yield self

    async def mark(self, content: bytes) -> None:
        """See `HeldStore`."""
        self._content = content

    put = mark
