"""Runs the statements of migrations, in one process at a time, with short waits for locks."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from ingest.store.connection import connect
from ingest.store.translation import translated

# An arbitrary constant, "ingmig" in ASCII. Not that of the release before, whose waiting statement would keep
# `CREATE INDEX CONCURRENTLY` waiting.
_LOCK = 0x696E676D6967
_LOCK_PAUSE = 0.2
# Writing workers wait behind a migration that waits for a table, so this is less than their own timeout for a locked table.
LOCK_SECONDS = 1.0
_LOCK_ATTEMPTS = 10
# An index of a large table takes long, and waits for every older transaction.
_STATEMENT_SECONDS = 24 * 3600
_CONCURRENTLY = re.compile(r"^(CREATE UNIQUE|CREATE|DROP) INDEX CONCURRENTLY ", re.MULTILINE)
# PostgreSQL 17 added `transaction_timeout`.
_TAKE_LOCK = f"""
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '200ms';
SELECT pg_advisory_xact_lock({_LOCK});
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""  # noqa: S608  a constant


@asynccontextmanager
async def migrating_alone(dsn: str) -> AsyncIterator[None]:
    """Wait until no other process migrates, and make others wait.

    The lock is held by a transaction, so that it works through PgBouncer. `CREATE INDEX CONCURRENTLY` waits for the end of every
    transaction that has a snapshot. So a wait for the lock is short and repeated, and the holder runs no query that leaves a portal.
    """
    async with connect(dsn) as connection:
        with translated():
            while True:
                try:
                    await connection.execute(_TAKE_LOCK)
                    break
                except asyncpg.LockNotAvailableError:
                    await connection.execute("ROLLBACK")
        yield


async def run_in_transaction(connection: asyncpg.Connection, sql: str, lock_seconds: float) -> None:
    """Run statements in one transaction, or a concurrent one on its own.

    A wait for a lock is short, and is repeated after a pause in which writers continue.

    Raises:
        asyncpg.LockNotAvailableError: another transaction uses a table during all attempts.
    """
    if _CONCURRENTLY.search(sql):
        # Its locks do not block writers.
        await connection.execute(sql, timeout=_STATEMENT_SECONDS)
        return
    for attempt in range(1, _LOCK_ATTEMPTS + 1):
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
                await connection.execute(sql, timeout=_STATEMENT_SECONDS)
        except asyncpg.LockNotAvailableError:
            if attempt == _LOCK_ATTEMPTS:
                raise
            await asyncio.sleep(_LOCK_PAUSE)
        else:
            return
