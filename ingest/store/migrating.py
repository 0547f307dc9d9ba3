"""Runs the statements of migrations, in one process at a time, with short waits for locks."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from ingest.domain.exponential_pause import exponential_pause
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated

# An arbitrary constant, "ingmig" in ASCII. It differs from the previous release's constant, because that
# release's waiting statement would keep `CREATE INDEX CONCURRENTLY` waiting.
_LOCK = 0x696E676D6967
_LOCK_PAUSE = 0.2
# Writing workers wait behind a migration that waits for a table, so this is less than their own timeout for a locked table.
LOCK_SECONDS = 1.0
_LOCK_ATTEMPTS = 10
_LONGEST_PAUSE = 5.0
# An index of a large table takes long, and waits for every older transaction.
_STATEMENT_SECONDS = 24 * 3600
_CONCURRENTLY = re.compile(r"^(CREATE UNIQUE|CREATE|DROP) INDEX CONCURRENTLY ", re.MULTILINE)
_CREATED = re.compile(r"^(CREATE (?:UNIQUE )?INDEX) CONCURRENTLY (\w+) ON (\w+) (.*)", re.MULTILINE | re.DOTALL)
_DROPPED = re.compile(r"^DROP INDEX CONCURRENTLY (?:IF EXISTS )?(\w+)", re.MULTILINE)
_IS_PARTITIONED = "SELECT relkind IN ('p', 'I') FROM pg_class WHERE oid = to_regclass($1)"
_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass($1) ORDER BY inhrelid"
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


async def run_in_transaction(
    connection: asyncpg.Connection, sql: str, lock_seconds: float, attempts: int = _LOCK_ATTEMPTS
) -> None:
    """Run statements in one transaction, or a concurrent one on its own.

    A wait for a lock is short, and is repeated after a pause in which writers continue. After ten attempts, the pauses become longer.

    Raises:
        asyncpg.LockNotAvailableError: another transaction uses a table during all attempts.
    """
    if _CONCURRENTLY.search(sql):
        await _run_concurrently(connection, sql, lock_seconds)
        return
    for attempt in range(1, attempts + 1):
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
                await connection.execute(sql, timeout=_STATEMENT_SECONDS)
        except asyncpg.LockNotAvailableError:
            if attempt == attempts:
                raise
            await asyncio.sleep(exponential_pause(_LOCK_PAUSE, _LONGEST_PAUSE, attempt - _LOCK_ATTEMPTS))
        else:
            return


async def _run_concurrently(connection: asyncpg.Connection, sql: str, lock_seconds: float) -> None:
    """Create or drop an index with locks that do not block writers.

    PostgreSQL cannot do this for a partitioned table. Its index is built in one partition after the other, and is then complete.
    """
    created, dropped = _CREATED.search(sql), _DROPPED.search(sql)
    relation = created[3] if created else dropped[1] if dropped else ""
    async with connection.transaction(isolation="read_committed"):
        is_partitioned = await connection.fetchval(_IS_PARTITIONED, relation)
        partitions = [name for (name,) in await connection.fetch(_PARTITIONS, relation)]
    if not is_partitioned:
        await connection.execute(sql, timeout=_STATEMENT_SECONDS)
    elif dropped:
        await run_in_transaction(connection, f"DROP INDEX {relation}", lock_seconds)
    elif created:
        create, index, _, rest = created.groups()
        await run_in_transaction(connection, f"{create} {index} ON ONLY {relation} {rest}", lock_seconds)
        for number, partition in enumerate(partitions):
            part = f"{index}_{number}"
            # An interrupted statement leaves an invalid index behind.
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {part}", timeout=_STATEMENT_SECONDS)
            await connection.execute(f"{create} CONCURRENTLY {part} ON {partition} {rest}", timeout=_STATEMENT_SECONDS)
            await run_in_transaction(connection, f"ALTER INDEX {index} ATTACH PARTITION {part}", lock_seconds)
