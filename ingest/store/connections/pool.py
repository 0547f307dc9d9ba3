"""A few connections to PostgreSQL that one process shares among many short concurrent statements.

A source uses at most one connection, so that its statements run one after the other. A source whose statements are slow, because its rows
are locked or its orders are large, uses only a half of the connections together with other slow sources.

If the process dies here, the server ends the running statements as in `ingest.store.connections.connection`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import asyncpg

from ingest.domain.errors import StoreLocked, StoreUnavailable, TableLocked
from ingest.store.connections.connection import BATCH_TIMEOUT, Reconnecting, Work, is_behind_pooler
from ingest.store.connections.lock_watch import LockWatch
from ingest.store.connections.translation import blaming_no_row

MOST_CONNECTIONS = 4
"""The connections of one process. Batches take milliseconds, so that more would only help while statements wait for locks."""

# Other batches hold a lock for milliseconds. A transaction that holds one for 2 s (a share of the timeout) may last for hours.
_LOCK_SHARE = 2 / 15
# Seconds of a statement from which on its source counts as slow. A usual batch takes less than a tenth.
_SLOW = 0.5

# The share of the longest wait for a lock after which the locked tables are looked for.
_LOOK_SHARE = 0.5

_T = TypeVar("_T")
_Fetch = Callable[[Reconnecting], Awaitable[list[asyncpg.Record]]]


class SourceConnection:
    """The connection of one source, with the methods of `Reconnecting`: for each statement one of the pool's connections."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._lock = asyncio.Lock()
        self._is_slow = False

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
            was_slow = self._is_slow
            connection = await self._pool.acquire(is_slow=was_slow)
            started_at = time.monotonic()
            watching = self._pool.watching_locks()
            try:
                return await fetch(connection)
            except (StoreLocked, TableLocked) as error:
                if locks := await watching.found():
                    raise TableLocked(locks) from error
                raise
            finally:
                watching.end()
                self._is_slow = time.monotonic() - started_at >= _SLOW
                self._pool.release(connection, was_slow=was_slow)


class SourceRecords:
    """The connection of one source for statements that store no order. `fetch` raises the errors of `Pool.fetch`."""

    def __init__(self, connection: SourceConnection) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and return its rows."""
        with blaming_no_row():
            return await self._connection.fetch(statement, *arguments)


class Pool:
    """Runs each statement or transaction on a free connection, and waits if all are busy.

    It connects with the first statement, so that it can be opened while PostgreSQL is unavailable. A pooler is recognized then.

    Args:
        dsn: DSN of the database.
        size: number of connections.
        timeout: seconds for a statement to finish, and also the longest wait of `fetch` for a free connection.
        lock_timeout: seconds to wait for each lock, or None for the server's setting.
    """

    def __init__(self, dsn: str, *, size: int, timeout: float, lock_timeout: float | None = None) -> None:
        self._dsn = dsn
        self._size = size
        self._timeout = timeout
        self._lock_timeout = lock_timeout
        self._opening = asyncio.Lock()
        self._all: list[Reconnecting] = []
        # The most recently used connection is reused first, so that few are open under low load.
        self._free: list[Reconnecting] = []
        self._most_slow = max(1, size // 2)
        self._slow = 0
        # In order, so that a source waits for one statement of each other source, at most.
        self._waiting: list[tuple[bool, asyncio.Future[Reconnecting]]] = []

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        dsn: str,
        *,
        size: int = MOST_CONNECTIONS,
        timeout: float = 10.0,  # noqa: ASYNC109  of each statement
        lock_timeout: float | None = None,
    ) -> AsyncIterator[Self]:
        """Open a pool, and close its connections at the end."""
        pool = cls(dsn, size=size, timeout=timeout, lock_timeout=lock_timeout)
        try:
            yield pool
        finally:
            pool.close()

    @classmethod
    @asynccontextmanager
    async def open_for_batches(
        cls,
        dsn: str,
        *,
        size: int = MOST_CONNECTIONS,
        timeout: float = BATCH_TIMEOUT,  # noqa: ASYNC109  of each statement
    ) -> AsyncIterator[Self]:
        """Open and prepare a pool for batches of orders. A batch waits for each lock for a share of its timeout."""
        async with cls.open(dsn, size=size, timeout=timeout, lock_timeout=timeout * _LOCK_SHARE) as pool:
            await pool.prepare()
            yield pool

    def of_source(self) -> SourceConnection:
        """Return the connection of one source."""
        return SourceConnection(self)

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and return its rows.

        Raises:
            RowsRefused: the database certainly cannot store an argument.
            StoreRefused: PostgreSQL rejects the statement otherwise, for example by a constraint or a policy's function.
            StoreUnavailable: as in `Reconnecting.fetch`, or no connection becomes free in time.
        """
        return await self._on_one(lambda connection: connection.fetch(statement, *arguments))

    async def transact(self, work: Work[_T]) -> _T:
        """Run several statements in one transaction, with the errors of `fetch`."""
        return await self._on_one(lambda connection: connection.transact(work))

    async def _on_one(self, use: Callable[[Reconnecting], Awaitable[_T]]) -> _T:
        await self.prepare()
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self.acquire(is_slow=False)
        except TimeoutError:
            raise StoreUnavailable(f"all {self._size} connections are busy") from None
        try:
            with blaming_no_row():
                return await use(connection)
        finally:
            self.release(connection, was_slow=False)

    async def prepare(self) -> None:
        """Recognize a pooler, unless a statement has done so.

        Raises:
            StoreUnavailable: PostgreSQL cannot be reached now.
            UserError: PostgreSQL denies access.
        """
        if self._all:
            return
        async with self._opening:
            if self._all:
                return
            pooled = await is_behind_pooler(self._dsn)
            limits: dict[str, Any] = {"timeout": self._timeout, "lock_timeout": self._lock_timeout}
            self._all = [Reconnecting(self._dsn, pooled=pooled, **limits) for _ in range(self._size)]
            self._free = [*self._all]

    def watching_locks(self) -> LockWatch:
        """Look for locked tables if a statement that begins now waits for a lock."""
        return LockWatch(self._dsn, _LOOK_SHARE * (self._lock_timeout or self._timeout))

    def close(self) -> None:
        """Close all connections immediately."""
        for connection in self._all:
            connection.close()

    async def acquire(self, *, is_slow: bool) -> Reconnecting:
        """Wait for a connection, in order of the calls. If it is cancelled, no connection is acquired."""
        await self.prepare()
        if not self._waiting and self._may_take(is_slow=is_slow):
            return self._take(is_slow=is_slow)
        granted: asyncio.Future[Reconnecting] = asyncio.get_running_loop().create_future()
        self._waiting.append((is_slow, granted))
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._waiting = [waiting for waiting in self._waiting if waiting[1] is not granted]
            else:  # it was cancelled in the same iteration of the event loop
                self.release(granted.result(), was_slow=is_slow)
            raise

    def release(self, connection: Reconnecting, *, was_slow: bool) -> None:
        """Release a connection, which was acquired as slow or not."""
        self._free.append(connection)
        self._slow -= was_slow
        self._grant()

    def _grant(self) -> None:
        """Give free connections to waiting statements in order. Those of slow sources wait while others pass."""
        for is_slow, granted in [*self._waiting]:
            if not self._free:
                return
            if granted.cancelled() or self._may_take(is_slow=is_slow):
                self._waiting.remove((is_slow, granted))
                if not granted.cancelled():
                    granted.set_result(self._take(is_slow=is_slow))

    def _may_take(self, *, is_slow: bool) -> bool:
        return bool(self._free) and not (is_slow and self._slow >= self._most_slow)

    def _take(self, *, is_slow: bool) -> Reconnecting:
        self._slow += is_slow
        return self._free.pop()
