"""Where the processes of a source share an access token and a refresh token that changes with each use.

The processes store opaque bytes. One of them at a time holds the lock, and only that process may replace the bytes. The lock ends with
the process that holds it.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

LONGEST_EXCHANGE = 10.0
"""Seconds of one request for a token. Every order waits for it. A lock outlives it by a few seconds, and then ends even without its holder."""


class TokenStoreUnavailable(Exception):
    """The store cannot be used now, or the lock was lost. The message names the store."""


class Stored(msgspec.Struct, frozen=True):
    """The state of a store.

    Attributes:
        content: the bytes, or None if none were stored.
        now: Unix time by the clock of the store, which is the same for all processes.
    """

    content: bytes | None
    now: float


class HeldStore(Protocol):
    """A store whose lock this process holds. Methods raise `TokenStoreUnavailable`."""

    @property
    def stored(self) -> Stored:
        """The state, which no other process changes while the lock is held."""

    async def mark(self, content: bytes) -> None:
        """Replace the bytes durably, and hold the lock for another `LONGEST_EXCHANGE`. Proves that the store can be written."""

    async def put(self, content: bytes) -> None:
        """Replace the bytes durably. The lock may have ended on return."""


class TokenStore(Protocol):
    """A store. Methods raise `TokenStoreUnavailable`."""

    async def read(self) -> Stored:
        """Return the state, without waiting for a lock."""

    def lock(self) -> AbstractAsyncContextManager[HeldStore | None]:
        """Hold the lock in the block, or return None immediately if another process holds it."""
