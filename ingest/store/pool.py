"""A few connections for many short statements that run at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import asyncpg

from ingest.domain.errors import RowsRefused, StoreUnavailable
from ingest.store.connection import Reconnecting, is_behind_pooler
from ingest.store.translation import StoreRefused


class Pool:
    """Runs each statement on a free connection, in a transaction of its own; more statements wait for one.

    It connects with the first statement, so that it can be opened while PostgreSQL is unavailable. A pooler in front of it is
    recognized then.

    Args:
        dsn: where to.
        size: connections.
        timeout: seconds within which a statement has to finish, and for which it may wait for a connection before.
    """

    def __init__(self, dsn: str, *, size: int, timeout: float) -> None:
        self._dsn = dsn
        self._size = size
        self._timeout = timeout
        # The last one used is used first: in quiet times, few connections are open.
        self._free: asyncio.LifoQueue[Reconnecting] = asyncio.LifoQueue()
        self._all: list[Reconnecting] = []
        self._opening = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, *, size: int = 4, timeout: float = 10.0) -> AsyncIterator[Self]:  # noqa: ASYNC109  of each statement
        """A pool, whose connections are closed at the end."""
        pool = cls(dsn, size=size, timeout=timeout)
        try:
            yield pool
        finally:
            pool.close()

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement; return its rows.

        Raises:
            RowsRefused: if the database cannot hold an argument for certain.
            StoreRefused: if PostgreSQL refuses it otherwise, for example by a constraint or a policy's function.
            StoreUnavailable: as `Reconnecting.fetch`; also if no connection becomes free in time.
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
            raise StoreRefused(f"PostgreSQL refuses: {error}") from error
        finally:
            self._free.put_nowait(connection)

    def close(self) -> None:
        """Close all connections at once."""
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
