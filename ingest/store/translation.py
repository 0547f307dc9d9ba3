"""What asyncpg raises, translated into errors that are named for what the caller should do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ingest.domain.errors import (
    RowsRefused,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    UserError,
)
from ingest.domain.os_errors import plain

# SQLSTATE classes, see "PostgreSQL Error Codes" in its manual. A row's fault may be: 21 cardinality violation, 22 data exception,
# 23 integrity constraint violation, 27 triggered data change violation, 38 and 39 what functions in other languages raise, 44 WITH
# CHECK OPTION violation, 54 program limit exceeded, P0 what functions in PL/pgSQL raise. 0A, 28, 3D, 3F and 42 (not supported for
# this kind of table, credentials, no such database, no such schema, no such table, no permission) need a person to fix them.
ROW_CLASSES = ("21", "22", "23", "27", "38", "39", "44", "54", "P0")
_SETUP_CLASSES = ("0A", "28", "3D", "3F", "42")
# Whatever SQLSTATE somebody's function has given it, what it raises may be a row's fault, unless it says that something is unavailable:
# 08 connection, 25 transaction state, 40 rollback, 53 resources, 55 locks, 57 operator intervention, 58 system.
_UNAVAILABLE_CLASSES = ("08", "25", "40", "53", "55", "57", "58")
# The server has met something that should not be, such as a damaged page.
_INTERNAL = "XX"
# The functions of PostgreSQL that report what a PL/pgSQL function raises, and a row that a policy (42501) does not allow.
_REFUSING = ("exec_stmt_raise", "ExecWithCheckOptions")
# Texts that the database cannot store in its encoding, such as NUL characters.
_TEXT_ERRORS = ("22021", "22P05")
# Data exceptions and syntax errors quote the value: in English `invalid input syntax for type integer: "17850"`, with other quotes
# in other languages.
_QUOTING = ("22", "42601")
# The functions of PostgreSQL that report an error whose text a user's function in PL/pgSQL or PL/Python has written.
_RAISING = ("exec_stmt_raise", "exec_stmt_assert", "PLy_output", "PLy_elog_impl")
_QUOTED = re.compile(r"[\"'«»„“”「」『』].*[\"'«»„“”「」『』]", re.DOTALL)
CANCELLED = "57014"
# A lock was not available within `lock_timeout`.
_LOCKED = "55P03"
# No such prepared statement, or one of another client: a pooler that was put in between gives us another server process.
NOT_PREPARED_HERE = ("26000", "42P05")
_NO_TABLE = "42P01"
# In a message, whose language is the server's choice. The outbox, in a database of others, has another name.
_OUR_TABLES = re.compile(r"\b(orders|erased_orders|audit_log)\b")

_CLOSED = "the connection was closed"
# What asyncpg raises for it: instead of what the server said last, if anything.
_OF_A_CLOSED_ONE = re.compile(r"connection is closed|cannot switch to state|unexpected connection_lost")

_KINDS: dict[str, type[StoreUnavailable]] = {
    CANCELLED: StoreTooSlow,
    "25P04": StoreTooSlow,  # `transaction_timeout` (PostgreSQL 17), which ends the connection as well
    "53200": StoreTooSlow,  # no memory for so much at once
    "53400": StoreTooSlow,  # `temp_file_limit`
    _LOCKED: StoreLocked,
}


class StoreRefused(UserError, StoreUnavailable):
    """PostgreSQL refuses what we need: wrong credentials, no such database or table, no permission."""


class UnusableDsn(StoreRefused):
    """The DSN cannot be understood, or a file that it needs cannot be used."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn asyncpg's exceptions into `StoreUnavailable` or `StoreRefused`."""
    try:
        with translated_for_rows():
            yield
    except RowsRefused as error:
        # There are none: a trigger on DDL, or a policy's function.
        raise StoreRefused(f"PostgreSQL refuses: {error}") from error.__cause__


@contextmanager
def translated_for_rows() -> Iterator[None]:
    """As `translated`, for a statement with rows or other values: `RowsRefused` if they may be at fault.

    What is not known to be a row's fault counts as `StoreUnavailable`: retrying a batch is better than dead-lettering it.
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
        # A timeout has no text of its own.
        nameless = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        text = _CLOSED if _OF_A_CLOSED_ONE.search(str(error)) else plain(str(error))
        raise StoreUnavailable(text or nameless) from error
    except RuntimeError as error:
        # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
        if "handler is closed" not in str(error):
            raise
        raise StoreUnavailable(_CLOSED) from error


def _translate_state(error: asyncpg.InterfaceError | asyncpg.InternalClientError) -> Exception:
    """What has become of a connection that asyncpg cannot use: its own words tell only what it could not do then."""
    before: BaseException | None = error
    while isinstance(before, asyncpg.InterfaceError | asyncpg.InternalClientError):
        before = before.__cause__ or before.__context__
    if isinstance(before, asyncpg.PostgresError):
        return translate_reply(before)
    return StoreUnavailable(_CLOSED if _OF_A_CLOSED_ONE.search(str(error)) else str(error))


def translate_reply(error: asyncpg.PostgresError) -> Exception:
    """What `translated` raises for something that PostgreSQL, or asyncpg in its name, has said."""
    sqlstate = sqlstate_of(error)
    if isinstance(error, asyncpg.DataError) and getattr(error, "severity", None) is None:
        # asyncpg's own, which quotes the arguments, and is nothing that PostgreSQL has said.
        return RowsRefused("a value cannot be encoded for PostgreSQL", is_certain=True)
    message = text_of(error)
    if is_refusal(error):
        return RowsRefused(f"{message} ({sqlstate})", is_certain=sqlstate in _TEXT_ERRORS)
    if sqlstate.startswith(_SETUP_CLASSES) and sqlstate not in NOT_PREPARED_HERE:
        advice = "; run `ingest migrate`" if sqlstate == _NO_TABLE and _OUR_TABLES.search(message) else ""
        return StoreRefused(f"PostgreSQL refuses: {message}{advice}")
    # What the server says before it ends a connection is the cause of asyncpg's own error.
    if isinstance(error.__cause__, asyncpg.PostgresError):
        message, sqlstate = text_of(error.__cause__), sqlstate_of(error.__cause__)
    return _KINDS.get(sqlstate, StoreUnavailable)(f"{message} ({sqlstate})" if sqlstate else message)


def text_of(error: asyncpg.PostgresError) -> str:
    """The message of an error, without values of a row.

    The detail quotes the row, so it is left out. An error in a user's function may hold anything: only its constraint is named.
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
    """Whether a row may be at fault."""
    sqlstate = sqlstate_of(error)
    if sqlstate.startswith(ROW_CLASSES):
        return True
    return getattr(error, "server_source_function", None) in _REFUSING and not sqlstate.startswith(_UNAVAILABLE_CLASSES)


def sqlstate_of(error: asyncpg.PostgresError) -> str:
    """Its SQLSTATE; empty if it has none."""
    return str(getattr(error, "sqlstate", "") or "")


def may_be_of_a_row(error: StoreUnavailable) -> bool:
    """Whether a statement that stores rows may have failed in this way because of some of them.

    A function of the user's that makes a mistake, such as a missing table, may make it for some rows only; and where the server
    finds a page damaged, only some rows are there.
    """
    told = error.__cause__
    if not isinstance(told, asyncpg.PostgresError) or getattr(told, "severity_en", None) != "ERROR":
        return False
    sqlstate = sqlstate_of(told)
    is_in_function = bool(getattr(told, "context", None)) and not sqlstate.startswith(_UNAVAILABLE_CLASSES)
    return is_in_function or sqlstate.startswith(_INTERNAL)
