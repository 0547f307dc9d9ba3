"""Connections to PostgreSQL, directly or through PgBouncer.

A connection whose statements keep failing is closed, because after a failover it may lead to the former primary. The next attempt
resolves the host name again.

If the process dies here, the server ends the running statement by itself, at the latest after its own timeout.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from ingest.domain.errors import StoreInterrupted, StoreTooSlow, StoreUnavailable, TableLocked
from ingest.store.connections.hosts import single_hosts
from ingest.store.connections.translation import (
    CANCELLED,
    NOT_PREPARED_HERE,
    ROW_CLASSES,
    InvalidDsn,
    StoreRefused,
    UnusableDsn,
    is_refusal,
    sqlstate_of,
    translate_reply,
    translated,
    translated_for_rows,
)

_T = TypeVar("_T")
Work = Callable[[asyncpg.Connection], Awaitable[_T]]
"""Runs statements on a connection."""

CONNECT_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
# A batch takes milliseconds. This limits the wait on a connection that the network has dropped silently.
BATCH_TIMEOUT = 15.0
# The server's own timeout as a share of ours. It ends a statement just before we stop waiting, even if our packets no longer arrive.
# Otherwise each attempt at a locked table would leave a waiting server process behind.
_SERVERS_SHARE = 14 / 15
# Seconds for the server to confirm a cancellation.
_CANCEL_TIMEOUT = 2.0

# Milliseconds to wait for a locked row that may be stored later.
_ROW_LOCK_TIMEOUT = 25
# Errors after which the connection stays usable: rows, deadlocks, resources, locks. After any other error, such as 25006 (a former
# primary), 57P0x (shutdown) or 08 (protocol), the next attempt opens a new connection.
_ON_THE_SAME_CONNECTION = (*ROW_CLASSES, "40", "53", "55", CANCELLED)
_SESSION_ATTRS = "target_session_attrs"
# The attribute that a server lacks, in asyncpg's message: `… requirement <SessionAttribute.read_write: 'read-write'>`.
_ATTRIBUTE = re.compile(r"'([a-z-]+)'")
# Overrides the default of the database or role, so that a statement that has waited for a table sees the latest commits. With an
# earlier snapshot, an order could be stored that was erased during the wait.
_ISOLATION = "read committed"
_USUAL_ISOLATION = "default_transaction_isolation"
# The statement that stores orders of more than 2 KB compresses them. With LZ4 it takes about 33 % less CPU time of the server. Not every
# server supports LZ4, and a value set by an operator stays.
_PREFER_LZ4 = """
SELECT set_config(name, 'lz4', false)
FROM pg_settings
WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)
"""
# The PostgreSQL function that warns when a commit is confirmed without the replica. Its name is the same in every message language.
_WAITS_FOR_REPLICA = "SyncRepWaitForLSN"


@asynccontextmanager
async def connect(dsn: str, *, setting: str = "INGEST_POSTGRES_DSN") -> AsyncIterator[asyncpg.Connection]:
    """Open a connection without prepared statements. Through PgBouncer, use it within one transaction.

    Raises:
        StoreUnavailable: PostgreSQL cannot be reached now.
        StoreRefused: PostgreSQL denies access.
        InvalidDsn: the DSN, which comes from `setting`, is invalid.
    """
    try:
        with translated():
            connection = await _open(dsn, command_timeout=COMMAND_TIMEOUT, statement_cache_size=0)
    except UnusableDsn as error:
        raise InvalidDsn(f"{setting}: {error}") from error
    try:
        yield connection
    finally:
        connection.terminate()


async def _open(dsn: str, **options: Any) -> asyncpg.Connection:
    """Connect to the first host of the DSN that responds and, if there are several, accepts writes, unless the DSN specifies otherwise.

    Hosts are tried in order, each with its own timeout, because one unresponsive host would use up a shared timeout.
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
    """Connect to one host. Its errors are never caused by a row, even if they are of the same kinds."""
    try:
        return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT, **options)
    except (OSError, KeyError) as error:
        # For a user ID without a name, Python raises a KeyError, and since 3.13 an OSError caused by it.
        if isinstance(error, KeyError) or isinstance(error.__cause__, KeyError):
            raise UnusableDsn(f"names no user, and the user ID of this process, {os.getuid()}, has no name") from error
        raise  # includes an untrusted certificate, which is also a ValueError
    except ValueError as error:
        raise UnusableDsn(str(error.args[0]) if isinstance(error, asyncpg.InterfaceError) else str(error)) from error
    except asyncpg.TargetServerAttributeNotMatched as error:
        wanted = _ATTRIBUTE.search(str(error))
        problem = "takes no writes" if wanted is None or wanted[1] == "read-write" else f"is not {wanted[1]}"
        raise StoreUnavailable(f"{problem} ({_SESSION_ATTRS})") from error
    except asyncpg.PostgresError as error:
        # Raised by a login trigger, or for an invalid parameter of the DSN.
        if not is_refusal(error):
            raise
        raise StoreRefused(f"PostgreSQL reports: {error.args[0]} ({sqlstate_of(error)})") from error


@asynccontextmanager
async def transaction(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """A transaction on a connection of `connect`, which ends it without a rollback after an error or a cancellation.

    An unresponsive server would delay a rollback by `COMMAND_TIMEOUT`, and with it the stop of a process.
    """
    await connection.execute("BEGIN")
    yield
    await connection.execute("COMMIT")


async def is_behind_pooler(dsn: str) -> bool:
    """Return whether a pooler such as PgBouncer assigns our transactions to changing server processes.

    A pooler reports its own process ID. Prepared statements then do not outlive a transaction, so the store does not cache them.
    """
    async with connect(dsn) as connection:
        with translated():
            async with transaction(connection):
                return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


class Reconnecting:
    """One connection for one statement at a time, opened on demand and reopened after errors.

    A pool would make a batch of one order 10 % slower.

    Args:
        dsn: DSN of the database.
        pooled: whether each statement may run in another server process. If so, prepared statements are not cached.
        timeout: seconds for a statement to finish.
        lock_timeout: seconds to wait for each lock, or None for the server's setting.
    """

    def __init__(
        self, dsn: str, *, pooled: bool, timeout: float = BATCH_TIMEOUT, lock_timeout: float | None = None
    ) -> None:
        self._dsn = dsn
        self._pooled = pooled
        self._timeout = timeout
        # A pooler rejects settings at start-up, so each transaction sets them there.
        self._settings = {
            "statement_timeout": str(int(timeout * _SERVERS_SHARE * 1000)),
            # With `error` as the role's setting, the warning about a commit without its replica would be suppressed.
            "client_min_messages": "warning",
        }
        if lock_timeout is not None:
            self._settings["lock_timeout"] = str(int(lock_timeout * 1000))
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()
        self._is_replicated = True

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement in its own transaction, and return its rows.

        Raises:
            StoreTooSlow: the statement did not finish in time.
            StoreLocked: another transaction holds a lock that the statement needs.
            StoreInterrupted: the connection was lost during the statement.
            StoreUnavailable: PostgreSQL cannot be used now.
            StoreRefused: PostgreSQL denies access.
            RowsRefused: PostgreSQL rejects an argument.
        """
        return await self._fetch(None, statement, arguments)

    async def fetch_unlocked(self, tables: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Like `fetch`, but do not wait for rows that other transactions have locked.

        Tables are waited for as in `fetch`, by the statement `tables`, which locks them in the same mode as `statement`.

        Raises:
            StoreLocked: rows are locked. A locked table raises `TableLocked`.
        """
        return await self._fetch(tables, statement, arguments)

    async def fetch_rolled_back(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Like `fetch`, but roll the statement back."""
        return await self._fetch(None, statement, arguments, end="ROLLBACK")

    async def transact(self, work: Work[_T]) -> _T:
        """Run several statements in one transaction, with the errors of `fetch`."""
        return await self._use(lambda connection: self._transact(connection, work))

    async def _fetch(
        self, tables: str | None, statement: str, arguments: Any, end: str = "COMMIT"
    ) -> list[asyncpg.Record]:
        return await self._use(lambda connection: self._run(connection, tables, statement, arguments, end))

    async def _use(self, work: Work[_T]) -> _T:
        with translated_for_rows():
            async with self._lock:
                connection = await self._connected()
                try:
                    result = await work(connection)
                except TimeoutError as error:
                    await _abandon(connection)
                    raise StoreTooSlow(f"no answer within {self._timeout:g} s") from error
                except asyncio.CancelledError:
                    # A cancellation must not wait. The server ends the statement after its own timeout.
                    connection.terminate()
                    raise
                except asyncpg.PostgresError as error:
                    if not sqlstate_of(error).startswith(_ON_THE_SAME_CONNECTION):
                        connection.terminate()
                    self._pooled = self._pooled or sqlstate_of(error) in NOT_PREPARED_HERE
                    raise
                self._require_replica()
                return result

    def close(self) -> None:
        """Close the connection immediately."""
        if self._connection is not None:
            self._connection.terminate()

    async def _run(
        self, connection: asyncpg.Connection, tables: str | None, statement: str, arguments: Any, end: str
    ) -> list[asyncpg.Record]:
        if not self._pooled and tables is None and end == "COMMIT":
            return await _fetch(connection, statement, arguments)

        async def work(connection: asyncpg.Connection) -> list[asyncpg.Record]:
            if tables is not None:
                await _wait_for(connection, tables)
            return await _fetch(connection, statement, arguments)

        return await self._transact(connection, work, end)

    async def _transact(self, connection: asyncpg.Connection, work: Work[_T], end: str = "COMMIT") -> _T:
        # A transaction keeps prepare, execute and the settings on one server process.
        settings = "; ".join(f"SET LOCAL {name} = {value}" for name, value in self._settings.items())
        await connection.execute(f"BEGIN ISOLATION LEVEL {_ISOLATION}; {settings}")
        try:
            result = await work(connection)
        except TimeoutError:
            raise  # the connection is abandoned
        except Exception:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute(end)
        return result

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
                # A pooler was added after the first connection.
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
            pass  # orders are stored without LZ4, or the connection is lost, which the next statement reports
        except BaseException:
            connection.terminate()
            raise

    def _note(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        # The warning arrives before the response to the statement.
        if getattr(message, "server_source_function", None) == _WAITS_FOR_REPLICA:
            self._is_replicated = False

    def _require_replica(self) -> None:
        """Fail if an operator has cancelled a commit's wait for its replica, because a failover would lose the commit.

        When the statement is repeated, it locks the row, so that its own commit waits for all earlier commits.
        """
        if not self._is_replicated:
            self._is_replicated = True
            raise StoreUnavailable("the wait for the synchronous replica was cancelled: the commit may not be there")


async def _fetch(connection: asyncpg.Connection, statement: str, arguments: Any) -> list[asyncpg.Record]:
    """Run the statement. A connection lost during it may have been lost because of it."""
    try:
        return list(await connection.fetch(statement, *arguments))
    except (asyncpg.PostgresConnectionError, ConnectionError) as error:
        connection.terminate()
        translation = translate_reply(error) if isinstance(error, asyncpg.PostgresError) else error
        if isinstance(translation, StoreTooSlow):
            raise
        raise StoreInterrupted(str(translation) or type(error).__name__) from error


async def _wait_for(connection: asyncpg.Connection, tables: str) -> None:
    """Wait for the tables' locks, so that the transaction waits only for rows afterwards, and only briefly."""
    try:
        await connection.execute(tables)
    except asyncpg.LockNotAvailableError as error:
        raise TableLocked(f"another transaction has locked the table: {error.args[0]}") from error
    await connection.execute(f"SET LOCAL lock_timeout = {_ROW_LOCK_TIMEOUT}")


async def _abandon(connection: asyncpg.Connection) -> None:
    """Close an unresponsive connection after requesting cancellation of its statement.

    Terminating it immediately would withdraw that request, which asyncpg sends on a separate connection.
    """
    with suppress(TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=_CANCEL_TIMEOUT)
    connection.terminate()
