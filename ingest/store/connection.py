"""Connections to PostgreSQL, directly or through PgBouncer.

A connection that keeps refusing statements is closed: after a failover it may lead to the former primary. The next attempt
resolves the host name again and connects to the server that answers there now.

When the process dies here, the server ends the running statement by itself, at the latest after its own timeout.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from ingest.domain.errors import ConfigError, StoreInterrupted, StoreTooSlow, StoreUnavailable
from ingest.store.hosts import single_hosts
from ingest.store.translation import (
    CANCELLED,
    NOT_PREPARED_HERE,
    ROW_CLASSES,
    StoreRefused,
    UnusableDsn,
    is_refusal,
    sqlstate_of,
    translate_reply,
    translated,
    translated_for_rows,
)

CONNECT_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
# A batch takes milliseconds; on a connection that was cut off without a word from the network, we wait this long.
BATCH_TIMEOUT = 15.0
# The server's own timeout, as a share of ours: it ends a statement just before we stop waiting for it, even if nothing that we send
# arrives any more. Otherwise each attempt at a locked table would leave a waiting server process behind.
_SERVERS_SHARE = 14 / 15
# For the server to confirm that it has cancelled a statement.
_CANCEL_TIMEOUT = 2.0

# What a statement waits for a locked row that may as well be stored later, in ms.
_ROW_LOCK_TIMEOUT = 25
# The statement is refused, not the connection: rows, deadlocks, resources, locks. After anything else (25006 read-only: it was the
# primary once; 57P0x: it ends; 08: the protocol) the next attempt gets a new connection.
_ON_THE_SAME_CONNECTION = (*ROW_CLASSES, "40", "53", "55", CANCELLED)
_SESSION_ATTRS = "target_session_attrs"
# The attribute that a server does not have, in asyncpg's words: `… requirement <SessionAttribute.read_write: 'read-write'>`.
_ATTRIBUTE = re.compile(r"'([a-z-]+)'")
# Whatever the usual one of the database or the role is: a statement that has waited for a table sees what was committed meanwhile.
# With a snapshot from before, an order could be stored that was erased meanwhile.
_ISOLATION = "read committed"
_USUAL_ISOLATION = "default_transaction_isolation"
# Orders of more than 2 KB are compressed by the statement that stores them, which takes a third less of the server's CPU time with
# LZ4. Not every server was built with it, and a setting that somebody has chosen stays.
_PREFER_LZ4 = """
SELECT set_config(name, 'lz4', false)
FROM pg_settings
WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)
"""
# The function of PostgreSQL, in every language of its messages, that warns when a commit is confirmed without the replica.
_WAITS_FOR_REPLICA = "SyncRepWaitForLSN"


@asynccontextmanager
async def connect(dsn: str, *, setting: str = "INGEST_POSTGRES_DSN") -> AsyncIterator[asyncpg.Connection]:
    """One connection that prepares nothing; what runs on it through PgBouncer belongs in one transaction.

    Raises:
        StoreUnavailable: if PostgreSQL cannot be reached now.
        StoreRefused: if it refuses us.
        ConfigError: if the DSN, which comes from `setting`, cannot be understood.
    """
    try:
        with translated():
            connection = await _open(dsn, command_timeout=COMMAND_TIMEOUT, statement_cache_size=0)
    except UnusableDsn as error:
        raise ConfigError(f"{setting}: {error}") from error
    try:
        yield connection
    finally:
        connection.terminate()


async def _open(dsn: str, **options: Any) -> asyncpg.Connection:
    """Connect to the first of the DSN's hosts that answers and, with several, takes writes, unless the DSN asks otherwise.

    One after the other, each with its own timeout: with a shared one, a host that does not answer would use up all of it.
    """
    hosts = single_hosts(dsn)
    if len(hosts) == 1:
        return await _open_one(dsn, **options)
    if _SESSION_ATTRS not in dsn and "PGTARGETSESSIONATTRS" not in os.environ:
        options[_SESSION_ATTRS] = "read-write"
    failed = []
    for host, one in hosts:
        try:
            with translated():
                return await _open_one(one, **options)
        except StoreRefused:
            raise
        except StoreUnavailable as error:
            failed.append(f"{host}: {error}")
    raise StoreUnavailable("; ".join(failed))


async def _open_one(dsn: str, **options: Any) -> asyncpg.Connection:
    """Connect to one host. What prevents it is no row's fault, although errors of the same kinds may be."""
    try:
        return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT, **options)
    except (OSError, KeyError) as error:
        # What Python raises where the system has no name for a user ID: a KeyError, and since 3.13 an OSError because of it.
        if isinstance(error, KeyError) or isinstance(error.__cause__, KeyError):
            raise UnusableDsn(f"names no user, and the user ID of this process, {os.getuid()}, has no name") from error
        raise  # also a certificate that is not accepted, which is a ValueError as well
    except ValueError as error:
        raise UnusableDsn(str(error.args[0]) if isinstance(error, asyncpg.InterfaceError) else str(error)) from error
    except asyncpg.TargetServerAttributeNotMatched as error:
        wanted = _ATTRIBUTE.search(str(error))
        what = "takes no writes" if wanted is None or wanted[1] == "read-write" else f"is not {wanted[1]}"
        raise StoreUnavailable(f"{what} ({_SESSION_ATTRS})") from error
    except asyncpg.PostgresError as error:
        # What a trigger on login raises, or a parameter of the DSN that has an invalid value.
        if not is_refusal(error):
            raise
        raise StoreRefused(f"PostgreSQL refuses: {error.args[0]} ({sqlstate_of(error)})") from error


async def is_behind_pooler(dsn: str) -> bool:
    """Whether something like PgBouncer assigns our transactions to changing server processes.

    A pooler reports a process ID of its own. Prepared statements then do not outlive a transaction, so the store
    keeps no cache of them.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


class Reconnecting:
    """One connection for one statement at a time, opened when needed, and again when it was lost or keeps refusing.

    A pool would cost a batch of one order a tenth more.

    Args:
        dsn: where to.
        pooled: whether each statement may run in another server process; if so, no prepared statements are kept.
        timeout: seconds within which a statement has to finish.
        lock_timeout: seconds that it waits for each lock; None: as the server is configured.
    """

    def __init__(
        self, dsn: str, *, pooled: bool, timeout: float = BATCH_TIMEOUT, lock_timeout: float | None = None
    ) -> None:
        self._dsn = dsn
        self._pooled = pooled
        self._timeout = timeout
        # A pooler accepts no settings at start-up: there, each transaction begins with them.
        self._settings = {
            "statement_timeout": str(int(timeout * _SERVERS_SHARE * 1000)),
            # Where the role's setting is `error`, we would not be told of a commit without its replica.
            "client_min_messages": "warning",
        }
        if lock_timeout is not None:
            self._settings["lock_timeout"] = str(int(lock_timeout * 1000))
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()
        self._is_replicated = True

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement in a transaction of its own; return its rows.

        Raises:
            StoreTooSlow: if it did not finish in time.
            StoreLocked: if another transaction holds a lock that it needs.
            StoreInterrupted: if the connection was lost while it ran.
            StoreUnavailable: if PostgreSQL cannot be used now.
            StoreRefused: if it refuses us.
            RowsRefused: if it refuses an argument.
        """
        return await self._fetch(None, statement, arguments)

    async def fetch_unlocked(self, tables: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """As `fetch`, without waiting for rows that other transactions have locked; for the tables it waits as `fetch` does.

        Args:
            tables: a statement that locks them as the other statement does.
            statement: see `fetch`.
            arguments: see `fetch`.

        Raises:
            StoreLocked: if rows are locked; that a table is locked is another `StoreUnavailable`.
        """
        return await self._fetch(tables, statement, arguments)

    async def fetch_rolled_back(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """As `fetch`, but the statement changes nothing: it is rolled back."""
        return await self._fetch(None, statement, arguments, end="ROLLBACK")

    async def _fetch(
        self, tables: str | None, statement: str, arguments: Any, end: str = "COMMIT"
    ) -> list[asyncpg.Record]:
        with translated_for_rows():
            async with self._lock:
                connection = await self._connected()
                try:
                    records = await self._run(connection, tables, statement, arguments, end)
                except TimeoutError as error:
                    await _abandon(connection)
                    raise StoreTooSlow(f"no answer within {self._timeout:g} s") from error
                except asyncio.CancelledError:
                    # A cancellation must not wait; the server ends the statement when its own timeout is over.
                    connection.terminate()
                    raise
                except asyncpg.PostgresError as error:
                    if not sqlstate_of(error).startswith(_ON_THE_SAME_CONNECTION):
                        connection.terminate()
                    self._pooled = self._pooled or sqlstate_of(error) in NOT_PREPARED_HERE
                    raise
                self._require_replica()
                return records

    def close(self) -> None:
        """Close the connection at once."""
        if self._connection is not None:
            self._connection.terminate()

    async def _run(
        self, connection: asyncpg.Connection, tables: str | None, statement: str, arguments: Any, end: str
    ) -> list[asyncpg.Record]:
        if not self._pooled and tables is None and end == "COMMIT":
            return await _fetch(connection, statement, arguments)
        # A transaction keeps prepare and execute on one server process, and the settings with them.
        settings = "; ".join(f"SET LOCAL {name} = {value}" for name, value in self._settings.items())
        await connection.execute(f"BEGIN ISOLATION LEVEL {_ISOLATION}; {settings}")
        try:
            if tables is not None:
                await _wait_for(connection, tables)
            records = await _fetch(connection, statement, arguments)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, StoreUnavailable):
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute(end)
        return records

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await _open(
                    self._dsn,
                    command_timeout=self._timeout,
                    statement_cache_size=0 if self._pooled else 100,
                    server_settings=None if self._pooled else {**self._settings, _USUAL_ISOLATION: _ISOLATION},
                )
            except (asyncpg.PostgresError, StoreUnavailable) as error:
                # One that was put in between while we were connected.
                self._pooled = self._pooled or "unsupported startup parameter" in str(error)
                raise
            self._connection.add_log_listener(self._note)
            if not self._pooled:
                await self._prefer_lz4(self._connection)
        return self._connection

    async def _prefer_lz4(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute(_PREFER_LZ4)
        except asyncpg.PostgresError:
            pass  # orders are stored without it, or the connection is lost, which the next statement reports
        except BaseException:
            connection.terminate()
            raise

    def _note(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        # It comes before the answer to the statement.
        if getattr(message, "server_source_function", None) == _WAITS_FOR_REPLICA:
            self._is_replicated = False

    def _require_replica(self) -> None:
        """Refuse a commit that somebody has released from waiting for its replica: a failover would lose it.

        Sent again, the statement locks the row, so that its own commit waits for everything before it.
        """
        if not self._is_replicated:
            self._is_replicated = True
            raise StoreUnavailable("the wait for the synchronous replica was cancelled: the commit may not be there")


async def _fetch(connection: asyncpg.Connection, statement: str, arguments: Any) -> list[asyncpg.Record]:
    """Run the statement itself: a connection that is lost meanwhile may have been lost because of it."""
    try:
        return list(await connection.fetch(statement, *arguments))
    except (asyncpg.PostgresConnectionError, ConnectionError) as error:
        connection.terminate()
        translation = translate_reply(error) if isinstance(error, asyncpg.PostgresError) else error
        if isinstance(translation, StoreTooSlow):
            raise
        raise StoreInterrupted(str(translation) or type(error).__name__) from error


async def _wait_for(connection: asyncpg.Connection, tables: str) -> None:
    """Wait for the tables' locks, so that whatever the transaction waits for afterwards is a row, and then not for long."""
    try:
        await connection.execute(tables)
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(f"another transaction has locked the table: {error.args[0]}") from error
    await connection.execute(f"SET LOCAL lock_timeout = {_ROW_LOCK_TIMEOUT}")


async def _abandon(connection: asyncpg.Connection) -> None:
    """Close a connection that does not answer, after asking its server to cancel the statement.

    Terminating it at once would withdraw that request, which asyncpg sends on a separate connection.
    """
    with suppress(TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=_CANCEL_TIMEOUT)
    connection.terminate()
