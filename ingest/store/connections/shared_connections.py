"""A few connections to PostgreSQL that the sources of one process share.

A source uses at most one connection, so that its statements run one after the other, as on its own connection. A source whose statements
are slow, because its rows are locked or its orders are large, uses only a half of the connections together with other slow sources.

If the process dies here, the server ends the running statements as in `ingest.store.connections.connection`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import asyncpg

from ingest.store.connections.connection import BATCH_TIMEOUT, Reconnecting, is_behind_pooler

MOST_CONNECTIONS = 4
"""The connections of one process. Batches take milliseconds, so that more would only help while statements wait for locks."""

# Other batches hold a lock for milliseconds. A transaction that holds one for 2 s (a share of the timeout) may last for hours.
_LOCK_SHARE = 2 / 15
# Seconds of a statement from which on its source counts as slow. A usual batch takes less than a tenth.
_SLOW = 0.5

_Fetch = Callable[[Reconnecting], Awaitable[list[asyncpg.Record]]]


class SourceConnection:
    """The connection of one source, with the methods of `Reconnecting`: for each statement one of the shared connections."""

    def __init__(self, shared: "SharedConnections") -> None:
        self._shared = shared
        self._lock = asyncio.Lock()
        self.is_slow = False

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """See `Reconnecting.fetch`."""
        return await self._on_one(lambda connection: connection.fetch(statement, *arguments))

    async def fetch_unlocked(self, tables: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """See `Reconnecting.fetch_unlocked`."""
        return await self._on_one(lambda connection: connection.fetch_unlocked(tables, statement, *arguments))

    async def fetch_rolled_back(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """See `Reconnecting.fetch_rolled_back`."""
        return await self._on_one(lambda connection: connection.fetch_rolled_back(statement, *arguments))

    async def _on_one(self, fetch: _Fetch) -> list[asyncpg.Record]:
        async with self._lock:
            connection = await self._shared.acquire(self)
            was_slow, started_at = self.is_slow, time.monotonic()
            try:
                return await fetch(connection)
            finally:
                self.is_slow = time.monotonic() - started_at >= _SLOW
                self._shared.release(connection, was_slow=was_slow)


class SharedConnections:
    """The connections of one process, each opened when it is first needed.

    Args:
        dsn: DSN of the database.
        pooled: see `Reconnecting`.
        timeout: seconds for a statement to finish, of which a share is spent on waiting for each lock.
        size: number of connections.
    """

    def __init__(self, dsn: str, *, pooled: bool, timeout: float, size: int) -> None:
        lock_timeout = timeout * _LOCK_SHARE
        self._all = [Reconnecting(dsn, pooled=pooled, timeout=timeout, lock_timeout=lock_timeout) for _ in range(size)]
        # The most recently used connection is reused first, so that few are open with few sources.
        self._free = [*self._all]
        self._most_slow = max(1, size // 2)
        self._slow = 0
        # In order, so that a source waits for one statement of each other source, at most.
        self._waiting: list[tuple[SourceConnection, asyncio.Future[Reconnecting]]] = []

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str,
        *,
        size: int = MOST_CONNECTIONS,
        timeout: float = BATCH_TIMEOUT,  # noqa: ASYNC109  of each statement
    ) -> AsyncIterator[Self]:
        """Open the connections, and close them at the end.

        Raises:
            StoreUnavailable: PostgreSQL cannot be reached now.
            UserError: PostgreSQL denies access.
        """
        shared = cls(dsn, pooled=await is_behind_pooler(dsn), timeout=timeout, size=size)
        try:
            yield shared
        finally:
            for connection in shared._all:
                connection.close()

    def of_source(self) -> SourceConnection:
        """Return the connection of one source."""
        return SourceConnection(self)

    async def acquire(self, source: SourceConnection) -> Reconnecting:
        """Wait for a connection, in order of the calls. If it is cancelled, no connection is acquired."""
        if not self._waiting and self._may_take(source):
            return self._take(source)
        granted: asyncio.Future[Reconnecting] = asyncio.get_running_loop().create_future()
        self._waiting.append((source, granted))
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._waiting = [waiting for waiting in self._waiting if waiting[1] is not granted]
            else:  # it was cancelled in the same iteration of the event loop
                self.release(granted.result(), was_slow=source.is_slow)
            raise

    def release(self, connection: Reconnecting, *, was_slow: bool) -> None:
        """Release a connection of a source, which was slow or not when it acquired the connection."""
        self._free.append(connection)
        self._slow -= was_slow
        self._grant()

    def _grant(self) -> None:
        """Give free connections to waiting sources in order. Slow sources wait while others pass."""
        for source, granted in [*self._waiting]:
            if not self._free:
                return
            if granted.cancelled() or self._may_take(source):
                self._waiting.remove((source, granted))
                if not granted.cancelled():
                    granted.set_result(self._take(source))

    def _may_take(self, source: SourceConnection) -> bool:
        return bool(self._free) and not (source.is_slow and self._slow >= self._most_slow)

    def _take(self, source: SourceConnection) -> Reconnecting:
        self._slow += source.is_slow
        return self._free.pop()
