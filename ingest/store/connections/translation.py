"""Translates exceptions of asyncpg into errors that are named for the caller's reaction."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ingest.domain.errors import (
    AccessDenied,
    ConfigError,
    RowsRefused,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    UserError,
)
from ingest.domain.os_errors import plain

# SQLSTATE classes, see "PostgreSQL Error Codes" in its manual. A row may cause: 21 cardinality violation, 22 data exception,
# 23 integrity constraint violation, 27 triggered data change violation, 38 and 39 errors of functions in other languages, 44 WITH
# CHECK OPTION violation, 54 program limit exceeded, P0 errors of PL/pgSQL functions. An operator must fix 0A (not supported for this
# kind of table), 28 (credentials), 3D (unknown database), 3F (unknown schema) and 42 (unknown table, no permission).
ROW_CLASSES = ("21", "22", "23", "27", "38", "39", "44", "54", "P0")
_SETUP_CLASSES = ("0A", "28", "3D", "3F", "42")
# A row may cause any error of a user's function, except with a SQLSTATE of these classes: 08 connection, 25 transaction state,
# 40 rollback, 53 resources, 55 locks, 57 operator intervention, 58 system.
_UNAVAILABLE_CLASSES = ("08", "25", "40", "53", "55", "57", "58")
# An internal error of the server, such as a damaged page.
_INTERNAL = "XX"
# The PostgreSQL functions that report errors of PL/pgSQL functions, and rows that a policy does not allow (42501).
_REFUSING = ("exec_stmt_raise", "ExecWithCheckOptions")
# Texts that the database cannot store in its encoding, such as NUL characters.
_TEXT_ERRORS = ("22021", "22P05")
# Data exceptions and syntax errors quote the value: in English `invalid input syntax for type integer: "17850"`, with other quotes
# in other languages.
_QUOTING = ("22", "42601")
# The PostgreSQL functions that report errors whose text comes from a user's function in PL/pgSQL or PL/Python.
_RAISING = ("exec_stmt_raise", "exec_stmt_assert", "PLy_output", "PLy_elog_impl")
_QUOTED = re.compile(r"[\"'«»„“”「」『』].*[\"'«»„“”「」『』]", re.DOTALL)
CANCELLED = "57014"
# A lock was not available within `lock_timeout`.
_LOCKED = "55P03"
# An unknown prepared statement, or another client's, because a newly added pooler has assigned another server process.
NOT_PREPARED_HERE = ("26000", "42P05")
_DENIED = "42501"
# About our own tables: one is missing, or our role lacks a right on it.
_ADVICE = {
    "42P01": "; run `ingest migrate`",
    _DENIED: "; as the owner of the tables, run `ingest migrate` with --runtime-role or --api-role and the name of this role",
}
# Searched in messages of any language. The outbox is not included, because its table is in another program's database.
_OUR_TABLES = re.compile(
    r"\b(orders|erased_orders|order_lines|audit_log|credentials|jobs|job_output|order_history|polls|schema_migrations)\b"
)

_CLOSED = "the connection was closed"
# Messages that asyncpg raises for a closed connection instead of the server's last error.
_OF_A_CLOSED_ONE = re.compile(r"connection is closed|cannot switch to state|unexpected connection_lost")

_KINDS: dict[str, type[StoreUnavailable]] = {
    CANCELLED: StoreTooSlow,
    "25P04": StoreTooSlow,  # `transaction_timeout` (PostgreSQL 17), which ends the connection as well
    "53200": StoreTooSlow,  # out of memory
    "53400": StoreTooSlow,  # `temp_file_limit`
    _LOCKED: StoreLocked,
}


class StoreRefused(UserError, StoreUnavailable):
    """PostgreSQL denies the request because of wrong credentials, a missing database or table, or missing permissions."""


class StoreDenied(AccessDenied, StoreRefused):
    """Our role lacks a right on a table, a column, a sequence or a schema."""


class UnusableDsn(StoreRefused):
    """The DSN is invalid, or a file that it refers to is unusable."""


class InvalidDsn(ConfigError, UnusableDsn):
    """The same with the name of the setting."""


@contextmanager
def translated() -> Iterator[None]:
    """Translate asyncpg's exceptions into `StoreUnavailable` or `StoreRefused`."""
    try:
        with translated_for_rows():
            yield
    except RowsRefused as error:
        # Without rows, the cause is a trigger on DDL or a policy's function.
        raise StoreRefused(f"PostgreSQL reports: {error}") from error.__cause__


@contextmanager
def blaming_no_row() -> Iterator[None]:
    """Raise `StoreRefused` instead of `RowsRefused` for a statement that stores no order, unless its value is certainly at fault."""
    try:
        yield
    except RowsRefused as error:
        if error.is_certain:
            raise
        raise StoreRefused(f"PostgreSQL reports: {error}") from error


@contextmanager
def translated_for_rows() -> Iterator[None]:
    """Like `translated`, for a statement with rows or other values. `RowsRefused` if they may be the cause.

    Any other error counts as `StoreUnavailable`, because retrying a batch is better than dead-lettering it.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        raise translate_reply(error) from error
    except asyncpg.InterfaceError as error:
        # asyncpg's own DataError (an argument that it cannot encode) is both an InterfaceError and a ValueError.
        if isinstance(error, ValueError):
            raise RowsRefused(str(error), is_certain=True) from error
        raise _translate_state(error) from error
    except asyncpg.InternalClientError as error:
        raise _translate_state(error) from error
    except (OSError, TimeoutError) as error:
        # A TimeoutError contains no text.
        nameless = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        text = _CLOSED if _OF_A_CLOSED_ONE.search(str(error)) else plain(str(error))
        raise StoreUnavailable(text or nameless) from error
    except RuntimeError as error:
        # uvloop raises it instead of an OSError for a recently closed connection.
        if "handler is closed" not in str(error):
            raise
        raise StoreUnavailable(_CLOSED) from error


def _translate_state(error: asyncpg.InterfaceError | asyncpg.InternalClientError) -> Exception:
    """Find the reason why asyncpg cannot use a connection. Its own message names only the failed operation."""
    before: BaseException | None = error
    while isinstance(before, asyncpg.InterfaceError | asyncpg.InternalClientError):
        before = before.__cause__ or before.__context__
    if isinstance(before, asyncpg.PostgresError):
        return translate_reply(before)
    return StoreUnavailable(_CLOSED if _OF_A_CLOSED_ONE.search(str(error)) else str(error))


def translate_reply(error: asyncpg.PostgresError) -> Exception:
    """Return the error that `translated` raises for a PostgreSQL error, including errors that asyncpg simulates."""
    sqlstate = sqlstate_of(error)
    if isinstance(error, asyncpg.DataError) and getattr(error, "severity", None) is None:
        # An error of asyncpg itself, which quotes the arguments.
        return RowsRefused("a value cannot be encoded for PostgreSQL", is_certain=True)
    message = text_of(error)
    if is_refusal(error):
        return RowsRefused(f"{message} ({sqlstate})", is_certain=sqlstate in _TEXT_ERRORS)
    if sqlstate.startswith(_SETUP_CLASSES) and sqlstate not in NOT_PREPARED_HERE:
        advice = _ADVICE.get(sqlstate, "") if _OUR_TABLES.search(message) else ""
        kind = StoreDenied if sqlstate == _DENIED else StoreRefused
        return kind(f"PostgreSQL reports: {message}{advice}")
    # The server's last message before it ends a connection is the cause of asyncpg's own error.
    if isinstance(error.__cause__, asyncpg.PostgresError):
        message, sqlstate = text_of(error.__cause__), sqlstate_of(error.__cause__)
    return _KINDS.get(sqlstate, StoreUnavailable)(f"{message} ({sqlstate})" if sqlstate else message)


def text_of(error: asyncpg.PostgresError) -> str:
    """Return the message of an error without values of a row.

    The detail is omitted because it quotes the row. An error of a user's function may contain any text, so only its constraint is named.
    """
    sqlstate = sqlstate_of(error)
    is_in_function = bool(getattr(error, "context", None)) and sqlstate.startswith(ROW_CLASSES)
    if is_in_function or getattr(error, "server_source_function", None) in _RAISING:
        constraint = getattr(error, "constraint_name", None)
        return "a function of the database raised an error" + (f", constraint {constraint}" if constraint else "")
    message = str(error.args[0]) if error.args else type(error).__name__
    if sqlstate.startswith(_QUOTING) and sqlstate not in _TEXT_ERRORS:
        return _QUOTED.sub("…", message)
    return message


def is_refusal(error: asyncpg.PostgresError) -> bool:
    """Return whether a row may have caused the error."""
    sqlstate = sqlstate_of(error)
    if sqlstate.startswith(ROW_CLASSES):
        return True
    return getattr(error, "server_source_function", None) in _REFUSING and not sqlstate.startswith(_UNAVAILABLE_CLASSES)


def sqlstate_of(error: asyncpg.PostgresError) -> str:
    """Return the SQLSTATE, or an empty text."""
    return str(getattr(error, "sqlstate", "") or "")


def may_be_of_a_row(error: StoreUnavailable) -> bool:
    """Return whether some of the rows that a statement stores may have caused its error.

    A bug in a user's function, such as a missing table, may affect only some rows. A damaged page also affects only some rows.
    """
    cause = error.__cause__
    if not isinstance(cause, asyncpg.PostgresError) or getattr(cause, "severity_en", None) != "ERROR":
        return False
    sqlstate = sqlstate_of(cause)
    is_in_function = bool(getattr(cause, "context", None)) and not sqlstate.startswith(_UNAVAILABLE_CLASSES)
    return is_in_function or sqlstate.startswith(_INTERNAL)
