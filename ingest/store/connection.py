"""Connections to PostgreSQL, with its errors translated into ours, directly or through PgBouncer.

A connection that keeps refusing statements is closed: after a failover it may lead to the former primary. The next attempt
resolves the host name again and connects to the server that answers there now.

When the process dies here, the server ends the running statement by itself, at the latest after its own timeout.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg

from ingest.domain.errors import (
    ConfigError,
    RowsRefused,
    StoreInterrupted,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    UserError,
)
from ingest.domain.os_errors import plain
from ingest.store.hosts import single_hosts

CONNECT_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
# A batch takes milliseconds; on a connection that was cut off without a word from the network, we wait this long.
BATCH_TIMEOUT = 15.0
# The server's own timeout, as a share of ours: it ends a statement just before we stop waiting for it, even if nothing that we send
# arrives any more. Otherwise each attempt at a locked table would leave a waiting server process behind.
_SERVERS_SHARE = 14 / 15
# For the server to confirm that it has cancelled a statement.
_CANCEL_TIMEOUT = 2.0

# SQLSTATE classes, see "PostgreSQL Error Codes" in its manual. A row's fault may be: 21 cardinality violation, 22 data exception,
# 23 integrity constraint violation, 27 triggered data change violation, 38 and 39 what functions in other languages raise, 44 WITH
# CHECK OPTION violation, 54 program limit exceeded, P0 what functions in PL/pgSQL raise. 0A, 28, 3D and 42 (not supported for this
# kind of table, credentials, no such database, no such table, no permission) need a person to fix them.
_ROW_CLASSES = ("21", "22", "23", "27", "38", "39", "44", "54", "P0")
_SETUP_CLASSES = ("0A", "28", "3D", "42")
# Whatever SQLSTATE somebody's function has given it, what it raises may be a row's fault, unless it says that something is unavailable:
# 08 connection, 25 transaction state, 40 rollback, 53 resources, 55 locks, 57 operator intervention, 58 system.
_UNAVAILABLE_CLASSES = ("08", "25", "40", "53", "55", "57", "58")
# The functions of PostgreSQL that report what a PL/pgSQL function raises, and a row that a policy (42501) does not allow.
_REFUSING = ("exec_stmt_raise", "ExecWithCheckOptions")
# Texts that the database cannot store in its encoding, such as NUL characters.
_TEXT_ERRORS = ("22021", "22P05")
# A data exception quotes the value: in English `invalid input syntax for type integer: "17850"`, with other quotes in other languages.
_DATA_EXCEPTION = "22"
_QUOTED = re.compile(r"[\"'«»„“”「」『』].*[\"'«»„“”「」『』]", re.DOTALL)
_CANCELLED = "57014"
# A lock was not available within `lock_timeout`.
_LOCKED = "55P03"
# What a statement waits for a locked row that may as well be stored later, in ms.
_ROW_LOCK_TIMEOUT = 25
# The statement is refused, not the connection: rows, deadlocks, resources, locks. After anything else (25006 read-only: it was the
# primary once; 57P0x: it ends; 08: the protocol) the next attempt gets a new connection.
_ON_THE_SAME_CONNECTION = (*_ROW_CLASSES, "40", "53", "55", _CANCELLED)
# No such prepared statement, or one of another client: a pooler that was put in between gives us another server process.
_NOT_PREPARED_HERE = ("26000", "42P05")
_NO_TABLE = "42P01"
# In a message, whose language is the server's choice. The outbox, in a database of others, has another name.
_OUR_TABLES = re.compile(r"\b(orders|erased_orders|audit_log)\b")
_SESSION_ATTRS = "target_session_attrs"
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


_KINDS: dict[str, type[StoreUnavailable]] = {
    _CANCELLED: StoreTooSlow,
    "25P04": StoreTooSlow,  # `transaction_timeout` (PostgreSQL 17), which ends the connection as well
    _LOCKED: StoreLocked,
}


class StoreRefused(UserError, StoreUnavailable):
    """PostgreSQL refuses what we need: wrong credentials, no such database or table, no permission."""


class UnusableDsn(StoreRefused):
    """The DSN cannot be understood, or a file that it needs cannot be used."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn asyncpg's exceptions into `StoreUnavailable`, `RowsRefused` or `StoreRefused`.

    What is not known to be a row's fault counts as `StoreUnavailable`: retrying a batch is better than dead-lettering it.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        raise _translate_reply(error) from error
    except asyncpg.InterfaceError as error:
        # asyncpg's own DataError (an argument that it cannot encode) is both an InterfaceError and a ValueError.
        if isinstance(error, ValueError):
            raise RowsRefused(str(error), is_certain=True) from error
        raise StoreUnavailable(str(error)) from error
    except (OSError, TimeoutError, asyncpg.InternalClientError) as error:
        # A timeout has no text of its own.
        nameless = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        raise StoreUnavailable(plain(str(error)) or nameless) from error
    except RuntimeError as error:
        # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
        if "handler is closed" not in str(error):
            raise
        raise StoreUnavailable("the connection was closed") from error


def _translate_reply(error: asyncpg.PostgresError) -> Exception:
    sqlstate = _sqlstate(error)
    # The message alone: the detail quotes the row, which holds customer data.
    message = str(error.args[0]) if error.args else type(error).__name__
    if isinstance(error, asyncpg.DataError) and getattr(error, "severity", None) is None:
        # asyncpg's own, which quotes the arguments, and is nothing that PostgreSQL has said.
        return RowsRefused("a value cannot be encoded for PostgreSQL", is_certain=True)
    if sqlstate.startswith(_DATA_EXCEPTION) and sqlstate not in _TEXT_ERRORS:
        message = _QUOTED.sub("…", message)
    if _is_refusal(error, sqlstate):
        return RowsRefused(f"{message} ({sqlstate})", is_certain=sqlstate in _TEXT_ERRORS)
    if sqlstate.startswith(_SETUP_CLASSES) and sqlstate not in _NOT_PREPARED_HERE:
        advice = "; run `ingest migrate`" if sqlstate == _NO_TABLE and _OUR_TABLES.search(message) else ""
        return StoreRefused(f"PostgreSQL refuses: {message}{advice}")
    # What the server says before it ends a connection is the cause of asyncpg's own error.
    cause = error.__cause__
    kind = _KINDS.get(_sqlstate(cause) if isinstance(cause, asyncpg.PostgresError) else sqlstate, StoreUnavailable)
    return kind(f"{message} ({sqlstate})" if sqlstate else message)


def _is_refusal(error: asyncpg.PostgresError, sqlstate: str) -> bool:
    """Whether a row may be at fault."""
    if sqlstate.startswith(_ROW_CLASSES):
        return True
    return getattr(error, "server_source_function", None) in _REFUSING and not sqlstate.startswith(_UNAVAILABLE_CLASSES)


def _sqlstate(error: asyncpg.PostgresError) -> str:
    return str(getattr(error, "sqlstate", "") or "")


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
    except OSError:
        raise  # also a certificate that is not accepted, which is a ValueError as well
    except ValueError as error:
        raise UnusableDsn(str(error.args[0]) if isinstance(error, asyncpg.InterfaceError) else str(error)) from error
    except asyncpg.PostgresError as error:
        # What a trigger on login raises, or a parameter of the DSN that has an invalid value.
        if not _is_refusal(error, _sqlstate(error)):
            raise
        raise StoreRefused(f"PostgreSQL refuses: {error.args[0]} ({_sqlstate(error)})") from error


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
        self._settings = {"statement_timeout": str(int(timeout * _SERVERS_SHARE * 1000))}
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
        with translated():
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
                    if not _sqlstate(error).startswith(_ON_THE_SAME_CONNECTION):
                        connection.terminate()
                    self._pooled = self._pooled or _sqlstate(error) in _NOT_PREPARED_HERE
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
        translation = _translate_reply(error) if isinstance(error, asyncpg.PostgresError) else error
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
