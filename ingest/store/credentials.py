"""Stores the tokens of a source in the table `credentials`, one row per source. Implements `ingest.domain.fetch.token_store`.

The lock is the lock of the row. PostgreSQL releases it when the process dies, when the connection is lost, or when the process does not
continue within `_LONGEST_HOLD`. It works through PgBouncer in transaction mode.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg

from ingest.domain.errors import ConfigError, StoreLocked, StoreUnavailable
from ingest.domain.fetch.token_store import LONGEST_EXCHANGE, Stored, TokenStoreUnavailable
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated

# A frozen process must not block the others. It cannot store tokens with this lock later, because its connection is closed.
_LONGEST_HOLD = LONGEST_EXCHANGE + 5.0
# Seconds for a statement. Each takes milliseconds.
_LONGEST_STATEMENT = 5.0

_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    f" SET LOCAL idle_in_transaction_session_timeout = {int(_LONGEST_HOLD * 1000)};"
    f" SET LOCAL statement_timeout = {int(_LONGEST_STATEMENT * 1000)}"
)
_READ = (
    "SELECT (SELECT content FROM credentials WHERE source = $1) AS content,"
    " extract(epoch FROM clock_timestamp())::float8 AS now"
)
_LOCK = (
    "SELECT content, extract(epoch FROM clock_timestamp())::float8 AS now"
    " FROM credentials WHERE source = $1 FOR UPDATE NOWAIT"
)
_ADD = "INSERT INTO credentials (source) VALUES ($1) ON CONFLICT DO NOTHING"
_PUT = "UPDATE credentials SET content = $2, changed_at = clock_timestamp() WHERE source = $1"


class CredentialRow:
    """The row of a source. It opens a connection for each use, because tokens are refreshed once an hour or less often.

    Args:
        dsn: DSN of the database.
        source: the name of the source.
    """

    def __init__(self, dsn: str, source: str) -> None:
        self._dsn = dsn
        self._source = source

    async def read(self) -> Stored:
        """See `TokenStore`."""
        with _translated():
            async with connect(self._dsn) as connection:
                with translated():
                    [row] = await connection.fetch(_READ, self._source, timeout=_LONGEST_STATEMENT)
        return _stored(row)

    @asynccontextmanager
    async def lock(self) -> AsyncIterator["HeldRow | None"]:
        """See `TokenStore`."""
        with _translated():
            async with connect(self._dsn) as connection:
                held = HeldRow(connection, self._source)
                yield held if await held.take() else None


class HeldRow:
    """The row, locked by a transaction of this connection. Implements `HeldStore`."""

    stored: Stored

    def __init__(self, connection: asyncpg.Connection, source: str) -> None:
        self._connection = connection
        self._source = source

    async def take(self) -> bool:
        """Begin a transaction, and lock the row. Return False if another transaction has locked it."""
        try:
            with _translated(), translated():
                await self._connection.execute(_BEGIN, timeout=_LONGEST_STATEMENT)
                rows = await self._connection.fetch(_LOCK, self._source, timeout=_LONGEST_STATEMENT)
                if not rows:
                    # Committed before it is locked: another process would wait for the uncommitted row.
                    await self._connection.execute(_ADD, self._source, timeout=_LONGEST_STATEMENT)
                    await self._connection.execute("COMMIT", timeout=_LONGEST_STATEMENT)
                    return await self.take()
        except _Locked:
            return False
        self.stored = _stored(rows[0])
        return True

    async def mark(self, content: bytes) -> None:
        """See `HeldStore`."""
        await self.put(content)
        if not await self.take() or self.stored.content != content:
            raise TokenStoreUnavailable("PostgreSQL: another process has locked the credential")

    async def put(self, content: bytes) -> None:
        """See `HeldStore`."""
        with _translated(), translated():
            await self._connection.execute(_PUT, self._source, content, timeout=_LONGEST_STATEMENT)
            await self._connection.execute("COMMIT", timeout=_LONGEST_STATEMENT)


class _Locked(TokenStoreUnavailable):
    """Another transaction has locked the row."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StoreLocked as error:
        raise _Locked(f"PostgreSQL: {error}") from error
    except (StoreUnavailable, ConfigError) as error:
        raise TokenStoreUnavailable(f"PostgreSQL: {error}") from error


def _stored(row: asyncpg.Record) -> Stored:
    return Stored(row["content"], row["now"])
