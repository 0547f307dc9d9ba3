"""A few connections for many short concurrent statements."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, Self

import asyncpg

from ingest.domain.errors import RowsRefused, StoreUnavailable
from ingest.store.connections.connection import Reconnecting, is_behind_pooler
from ingest.store.connections.translation import StoreRefused


class Pool:
    """Runs each statement in its own transaction on a free connection, and waits if all are busy.

    It connects with the first statement, so that it can be opened while PostgreSQL is unavailable. A pooler is recognized then.

    Args:
        dsn: DSN of the database.
        size: number of connections.
        timeout: seconds for a statement to finish, and also the longest wait for a free connection.
    """

    def __init__(self, dsn: str, *, size: int, timeout: float) -> None:
        self._dsn = dsn
        self._size = size
        self._timeout = timeout
        # The most recently used connection is reused first, so that few are open under low load.
        self._free: asyncio.LifoQueue[Reconnecting] = asyncio.LifoQueue()
        self._all: list[Reconnecting] = []
        self._opening = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, *, size: int = 4, timeout: float = 10.0) -> AsyncIterator[Self]:  # noqa: ASYNC109  of each statement
        """Open a pool, and close its connections at the end."""
        with closing(cls(dsn, size=size, timeout=timeout)) as pool:
            yield pool

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and return its rows.

        Raises:
            RowsRefused: the database certainly cannot store an argument.
            StoreRefused: PostgreSQL rejects the statement otherwise, for example by a constraint or a policy's function.
            StoreUnavailable: as in `Reconnecting.fetch`, or no connection becomes free in time.
        """
        if not self._all:
            await self._prepare()
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._free.get()
        except TimeoutError:
            raise StoreUnavailable(f"all {self._size} connections are busy") from None
        try:
            return await connection.fetch(statement, *arguments)
        except RowsRefused as error:
            if error.is_certain:
                raise
            raise StoreRefused(f"PostgreSQL reports: {error}") from error
        finally:
            self._free.put_nowait(connection)

    def close(self) -> None:
        """Close all connections immediately."""
        for connection in self._all:
            connection.close()

    async def _prepare(self) -> None:
        async with self._opening:
            if self._all:
                return
            pooled = await is_behind_pooler(self._dsn)
            self._all = [Reconnecting(self._dsn, pooled=pooled, timeout=self._timeout) for _ in range(self._size)]
            for connection in self._all:
                self._free.put_nowait(connection)
