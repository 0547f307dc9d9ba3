"""Connections to PostgreSQL, with its errors translated into ours, directly or through PgBouncer."""

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


class StoreRefused(UserError):
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


@asynccontextmanager
async def open_pool(dsn: str, size: int, *, statement_cache: bool) -> AsyncIterator[asyncpg.Pool]:
    """A pool of up to `size` connections, made when first needed."""
    with translated():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=BATCH_TIMEOUT,
            statement_cache_size=100 if statement_cache else 0,
            max_inactive_connection_lifetime=300.0,
            reset=_keep_as_it_is,
        )
    try:
        yield pool
    finally:
        pool.terminate()


async def _keep_as_it_is(connection: Any) -> None:
    """Spare the round trip that asyncpg makes after each use: we leave no session state behind."""
