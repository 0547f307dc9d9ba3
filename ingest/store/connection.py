"""Connections to PostgreSQL, with its errors translated into ours, directly or through PgBouncer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from ingest.domain.errors import ConfigError, RowsRefused, StoreUnavailable, UserError

CONNECT_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
# A batch takes milliseconds; on a connection that was cut off silently, an answer is waited for so long.
BATCH_TIMEOUT = 15.0

# SQLSTATE classes, see "PostgreSQL Error Codes" in its manual: 22 data exception, 23 integrity constraint violation,
# 54 program limit exceeded are a row's fault; 28, 3D and 42 (credentials, no such database, no such table, no permission)
# are for a person to put right.
_ROW_CLASSES = ("22", "23", "54")
_SETUP_CLASSES = ("28", "3D", "42")


class StoreRefused(UserError, StoreUnavailable):
    """PostgreSQL refuses what we need: wrong credentials, no such database or table, no permission."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn asyncpg's exceptions into `StoreUnavailable`, `RowsRefused` or `StoreRefused`.

    What is not known to be a row's fault counts as `StoreUnavailable`: a batch is better held than buried.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        raise _translate_reply(error) from error
    except asyncpg.InterfaceError as error:
        # asyncpg's own DataError (an argument that it cannot encode) is both an InterfaceError and a ValueError.
        if isinstance(error, ValueError):
            raise RowsRefused(str(error)) from error
        raise StoreUnavailable(str(error)) from error
    except (OSError, TimeoutError, asyncpg.InternalClientError) as error:
        raise StoreUnavailable(str(error) or type(error).__name__) from error
    except RuntimeError as error:
        # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
        if "handler is closed" not in str(error):
            raise
        raise StoreUnavailable("the connection was closed") from error


def _translate_reply(error: asyncpg.PostgresError) -> Exception:
    sqlstate = str(getattr(error, "sqlstate", "") or "")
    # The message alone: the detail quotes the row, which is a customer's.
    message = str(error.args[0]) if error.args else type(error).__name__
    if sqlstate.startswith(_ROW_CLASSES):
        return RowsRefused(f"{message} ({sqlstate})")
    if sqlstate.startswith(_SETUP_CLASSES):
        return StoreRefused(f"PostgreSQL refuses: {message}")
    return StoreUnavailable(f"{message} ({sqlstate})" if sqlstate else message)


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """One connection that prepares nothing; what runs on it through PgBouncer belongs in one transaction.

    Raises:
        StoreUnavailable: if PostgreSQL cannot be reached now.
        StoreRefused: if it refuses us.
        ConfigError: if the DSN cannot be understood.
    """
    try:
        with translated():
            connection = await asyncpg.connect(
                dsn, timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT, statement_cache_size=0
            )
    except (RowsRefused, ValueError) as error:
        raise ConfigError(f"INGEST_POSTGRES_DSN: {error}") from error
    try:
        yield connection
    finally:
        connection.terminate()


async def is_behind_pooler(dsn: str) -> bool:
    """Whether something like PgBouncer hands our transactions to changing server processes.

    A pooler greets us with a process ID of its own making. Prepared statements then do not outlive a transaction,
    so the store works without a cache of them.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


class Reconnecting:
    """One connection for one statement at a time, made when it is needed, and anew when it was lost.

    A pool would cost a batch of one order a tenth more.

    Args:
        dsn: where to.
        pooled: whether each statement may meet another server process: then nothing is prepared beforehand.
    """

    def __init__(self, dsn: str, *, pooled: bool) -> None:
        self._dsn = dsn
        self._pooled = pooled
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement in a transaction of its own; return its rows.

        Raises:
            StoreUnavailable: if PostgreSQL cannot be used now, or does not answer.
            StoreRefused: if it refuses us.
            RowsRefused: if it refuses an argument.
        """
        with translated():
            async with self._turn:
                connection = await self._connected()
                try:
                    if not self._pooled:
                        return list(await connection.fetch(statement, *arguments))
                    # A transaction keeps prepare and execute on one server process.
                    async with connection.transaction():
                        return list(await connection.fetch(statement, *arguments))
                except (TimeoutError, asyncio.CancelledError):
                    # We stop waiting for an answer: asyncpg would first have the server confirm the cancelling.
                    connection.terminate()
                    raise

    def hang_up(self) -> None:
        """Close the connection at once."""
        if self._connection is not None:
            self._connection.terminate()

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=BATCH_TIMEOUT,
                statement_cache_size=0 if self._pooled else 100,
            )
        return self._connection
