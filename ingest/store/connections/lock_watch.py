"""Finds the locked tables for which a statement waits, to name them with the sessions that hold the locks."""

import asyncio
from contextlib import suppress

import asyncpg

from ingest.domain.errors import StoreUnavailable, UserError
from ingest.store.connections.connection import connect
from ingest.store.lockers import waited_for


class LockWatch:
    """Looks for locked tables while a statement waits, on another connection.

    The server does not report for which lock a statement has waited, and the lock may be on a table of a trigger.

    Args:
        dsn: DSN of the database.
        after: seconds from the beginning of the statement.
    """

    def __init__(self, dsn: str, after: float) -> None:
        self._dsn = dsn
        self._looking: asyncio.Task[str] | None = None
        self._timer = asyncio.get_running_loop().call_later(after, self._begin)

    def _begin(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> str:
        with suppress(StoreUnavailable, UserError, asyncpg.PostgresError, OSError):
            async with connect(self._dsn) as connection:
                return "; ".join(dict.fromkeys(each.text for each in await waited_for(connection)))
        return ""

    async def found(self) -> str:
        """The sessions that have locked tables, or nothing."""
        return "" if self._looking is None else await self._looking

    def end(self) -> None:
        """Look no longer."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
