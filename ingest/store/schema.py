"""The schema's versions: numbered SQL files, each applied once.

All pending files are applied in one transaction under an advisory lock. A second process waits, then finds nothing left
to do; a crash in between leaves the schema as it was.

A migration that only expands the schema says so in its first line, `-- compatible with: N`: releases whose last migration is N
or later can work with the result. The database keeps that, so that a release can tell whether a schema which is
newer than itself is fit for it. A migration without that line is for its own release and later ones.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

import asyncpg
import msgspec

from ingest.domain.errors import UserError
from ingest.store.connection import connect
from ingest.store.translation import StoreRefused, translated

# Any constant will do; this one is "ingest" in ASCII.
_LOCK = 0x696E67657374
# Workers that write to a table wait behind a migration that waits for it: less long than a batch may take.
_LOCK_SECONDS = 8.0
# What a runtime role may do. It owns nothing, so it cannot change the schema.
RUNTIME_PRIVILEGES = (
    ("SELECT, INSERT, UPDATE", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT", "erased_orders"),
    ("SELECT", "schema_migrations"),
)
# What the role of the HTTP API may do: read, erase, and add to the audit log.
API_PRIVILEGES = (
    ("SELECT, DELETE", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT, INSERT", "erased_orders"),
    # Not its time and not its number: a row of the audit log cannot be backdated.
    ("INSERT (operation, phase, actor, action, selection, count)", "audit_log"),
    ("SELECT", "schema_migrations"),
)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_COMPATIBLE = re.compile(r"-- compatible with: (\d+)\n")
# A table that an earlier release has created lacks the column `compatible_with`; read in this way, it need not be there.
_STATE = """
SELECT coalesce(max(version), 0) AS version,
       coalesce(max(coalesce((to_jsonb(migration) ->> 'compatible_with')::integer, version)), 0) AS compatible_with
FROM schema_migrations AS migration
"""
# Schemas that a role may not use are not searched for its tables.
_CLOSED_SCHEMA = """
SELECT current_user AS role, nspname AS name FROM pg_namespace
WHERE NOT has_schema_privilege(oid, 'USAGE') AND ARRAY['orders', 'schema_migrations'] <@ ARRAY(
    SELECT relname::text FROM pg_class WHERE relnamespace = pg_namespace.oid)
"""


class SchemaMismatch(UserError):
    """The database's schema is not the one that this release works with."""


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema.

    Attributes:
        compatible_with: releases with this migration as their last one, and later releases, can work with the schema after
            this step; None: only those that know this step.
    """

    version: int
    name: str
    sql: str
    compatible_with: int | None = None


class _State(msgspec.Struct, frozen=True):
    """The schema of a database: its version, and the oldest version whose releases can work with it."""

    version: int
    compatible_with: int


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    found = []
    for file in (files(__package__) / "migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            sql = file.read_text(encoding="utf-8")
            compatible = _COMPATIBLE.match(sql)
            found.append(Migration(int(match[1]), match[2], sql, int(compatible[1]) if compatible else None))
    return sorted(found, key=lambda migration: migration.version)


async def migrate(
    dsn: str,
    known: Sequence[Migration],
    runtime_role: str | None = None,
    api_role: str | None = None,
    lock_seconds: float = _LOCK_SECONDS,
) -> list[Migration]:
    """Bring the schema up to date; return the migrations that this call applied.

    A newer schema that this release can work with stays as it is; the roles get their rights all the same.

    Args:
        dsn: with a role that owns the tables, or may create them.
        known: all migrations of this release, in order.
        runtime_role: a role to be granted what the workers and `ingest status` need, and nothing more.
        api_role: a role to be granted what the HTTP API needs, and nothing more.
        lock_seconds: how long a migration may wait for a table that another transaction uses.

    Raises:
        SchemaMismatch: if the database is too new for this release, or a migration fails.
        StoreRefused: if there is no such role, or the DSN's role may not grant rights on the tables.
        StoreUnavailable: if PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            # Whatever the usual isolation level is: once it has waited for another migration, this one sees what that has done.
            async with connection.transaction(isolation="read_committed"):
                # Waiting for another migration may take longer than any command should.
                await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=3600)
                await _prepare_record(connection)
                state = await _state(connection)
                _refuse_too_new(state, known)
                pending = [migration for migration in known if migration.version > state.version]
                await connection.execute(f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}")
                for migration in pending:
                    await _apply(connection, migration)
                for role, privileges in ((runtime_role, RUNTIME_PRIVILEGES), (api_role, API_PRIVILEGES)):
                    if role is not None:
                        await _grant(connection, role, privileges)
    return pending


async def _prepare_record(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),"
        " compatible_with integer)"
    )
    # Asked first: ALTER TABLE would wait for everybody who reads the table, even where it has nothing to add.
    has_column = await connection.fetchval(
        "SELECT count(*) FROM pg_attribute"
        " WHERE attrelid = 'schema_migrations'::regclass AND attname = 'compatible_with' AND NOT attisdropped"
    )
    if not has_column:
        await connection.execute("ALTER TABLE schema_migrations ADD COLUMN compatible_with integer")


async def _grant(connection: asyncpg.Connection, role: str, granted: Sequence[tuple[str, str]]) -> None:
    # GRANT takes no parameters: the server itself quotes the name.
    try:
        quoted = await connection.fetchval("SELECT quote_ident($1)", role)
    except asyncpg.DataError as error:
        # Not UTF-8, as an argument may be, or a character that the database's encoding does not have.
        raise StoreRefused(f"role {role!a} does not exist: this database cannot have its name") from error
    schema = await connection.fetchval("SELECT quote_ident(current_schema())")
    await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {quoted}")
    for privileges, table in granted:
        if "(" in privileges:
            # Earlier releases granted the whole table, which includes every column.
            await connection.execute(f"REVOKE ALL ON {table} FROM {quoted}")
        await connection.execute(f"GRANT {privileges} ON {table} TO {quoted}")


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    try:
        await connection.execute(migration.sql, timeout=3600)
        await connection.execute(
            "INSERT INTO schema_migrations (version, name, compatible_with) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.compatible_with,
        )
    except asyncpg.LockNotAvailableError as error:
        raise SchemaMismatch(
            f"migration {migration.version:04} {migration.name}: another transaction uses a table that it changes,"
            " nothing was changed; run `ingest migrate` again when that has ended"
        ) from error
    except asyncpg.PostgresError as error:
        # Connection lost, out of resources, stopped by an operator, deadlock: not the migration's fault.
        if str(error.sqlstate)[:2] in {"08", "53", "57", "40"}:
            raise
        raise SchemaMismatch(
            f"migration {migration.version:04} {migration.name} failed, nothing was changed: {error}"
        ) from error


async def check_schema(dsn: str, known: Sequence[Migration]) -> int:
    """Check that this release can work with the database's schema; return the schema's version.

    Raises:
        SchemaMismatch: the message says what to do.
        StoreUnavailable: if PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                state = await _state(connection)
    _refuse_too_new(state, known)
    if state.version < known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {state.version}, this release needs {known[-1].version}:"
            " run `ingest migrate`"
        )
    return state.version


async def refuse_closed_schema(connection: asyncpg.Connection) -> None:
    """See that a database without our tables is one: for a role without USAGE on their schema, it looks so.

    Raises:
        SchemaMismatch: if our role may not use a schema that has them.
    """
    for closed in await connection.fetch(_CLOSED_SCHEMA):
        raise SchemaMismatch(
            f"the role {closed['role']} lacks USAGE on the schema {closed['name']}, which has the tables:"
            f" as their owner, run `ingest migrate --runtime-role {closed['role']}`"
        )


async def _state(connection: asyncpg.Connection) -> _State:
    if not await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
        await refuse_closed_schema(connection)
        return _State(0, 0)
    [record] = await connection.fetch(_STATE)
    return _State(record["version"], record["compatible_with"])


def _refuse_too_new(state: _State, known: Sequence[Migration]) -> None:
    if state.compatible_with > known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {state.version}, which needs a release that knows version"
            f" {state.compatible_with}, but this release knows only up to {known[-1].version}:"
            " use a newer release of order-ingest"
        )
