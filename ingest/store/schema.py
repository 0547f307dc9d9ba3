"""Migrates the schema with numbered SQL files, each applied once.

All pending files are applied in one transaction under an advisory lock. A concurrent process waits and then has no files to apply. A
crash leaves the schema unchanged.

A migration that only expands the schema starts with the line `-- compatible with: N`. Releases whose last migration is N or later can
work with the result. The database stores N, so that a release can detect whether it supports a newer schema. A migration without that
line requires its own release or a later one.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

import asyncpg
import msgspec

from ingest.domain.errors import UserError
from ingest.store.connection import connect
from ingest.store.translation import StoreRefused, translated

# An arbitrary constant, "ingest" in ASCII.
_LOCK = 0x696E67657374
# Writing workers wait behind a migration that waits for a table, so this is less than the timeout of a batch.
_LOCK_SECONDS = 8.0
# Privileges of a runtime role, which cannot change the schema because it is not an owner.
RUNTIME_PRIVILEGES = (
    ("SELECT, INSERT, UPDATE", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT", "erased_orders"),
    ("SELECT", "schema_migrations"),
)
# Privileges of the HTTP API's role: read, erase, and add to the audit log.
API_PRIVILEGES = (
    ("SELECT, DELETE", "orders"),
    ("SELECT", "order_lines"),
    ("SELECT, INSERT", "erased_orders"),
    # Without time and number, so that rows of the audit log cannot be backdated.
    ("INSERT (operation, phase, actor, action, selection, count)", "audit_log"),
    ("SELECT", "schema_migrations"),
)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_COMPATIBLE = re.compile(r"-- compatible with: (\d+)\n")
# Read through to_jsonb because the table of an earlier release lacks the column `compatible_with`.
_STATE = """
SELECT coalesce(max(version), 0) AS version,
       coalesce(max(coalesce((to_jsonb(migration) ->> 'compatible_with')::integer, version)), 0) AS compatible_with
FROM schema_migrations AS migration
"""
# PostgreSQL does not search schemas that the role may not use.
_CLOSED_SCHEMA = """
SELECT current_user AS role, nspname AS name FROM pg_namespace
WHERE NOT has_schema_privilege(oid, 'USAGE') AND ARRAY['orders', 'schema_migrations'] <@ ARRAY(
    SELECT relname::text FROM pg_class WHERE relnamespace = pg_namespace.oid)
"""


class SchemaMismatch(UserError):
    """This release cannot work with the database's schema."""


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema.

    Attributes:
        compatible_with: the oldest last migration of releases that can work with the schema after this step. None if only
            releases that include this step can.
    """

    version: int
    name: str
    sql: str
    compatible_with: int | None = None


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
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
    """Bring the schema up to date. Returns the migrations that this call applied.

    A newer compatible schema stays unchanged. Rights are granted in either case.

    Args:
        dsn: DSN with a role that owns the tables or may create them.
        known: all migrations of this release, in order.
        runtime_role: role that receives exactly the rights of workers and `ingest status`.
        api_role: role that receives exactly the rights of the HTTP API.
        lock_seconds: how long a migration may wait for a table that another transaction uses.

    Raises:
        SchemaMismatch: the database is too new for this release, or a migration fails.
        StoreRefused: a role does not exist, or the DSN's role may not grant rights on the tables.
        StoreUnavailable: PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            # Overrides the default isolation level, so that the results of a concurrent migration are visible after the wait.
            async with connection.transaction(isolation="read_committed"):
                # Waiting for another migration may take longer than any command should.
                await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=3600)
                await _prepare_record(connection)
                version, compatible_with = await _state(connection)
                _refuse_too_new(version, compatible_with, known)
                pending = [migration for migration in known if migration.version > version]
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
    # Checked first, because ALTER TABLE would wait for all readers of the table, even without a change.
    has_column = await connection.fetchval(
        "SELECT count(*) FROM pg_attribute"
        " WHERE attrelid = 'schema_migrations'::regclass AND attname = 'compatible_with' AND NOT attisdropped"
    )
    if not has_column:
        await connection.execute("ALTER TABLE schema_migrations ADD COLUMN compatible_with integer")


async def _grant(connection: asyncpg.Connection, role: str, granted: Sequence[tuple[str, str]]) -> None:
    # GRANT does not support parameters, so the server quotes the name.
    try:
        quoted = await connection.fetchval("SELECT quote_ident($1)", role)
    except asyncpg.DataError as error:
        # The argument is not UTF-8, or contains a character outside of the database's encoding.
        raise StoreRefused(f"role {role!a} does not exist: this database cannot store its name") from error
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
            " nothing was changed. Run `ingest migrate` again when that has ended"
        ) from error
    except asyncpg.PostgresError as error:
        # Lost connection, lack of resources, operator intervention and deadlock are not caused by the migration.
        if str(error.sqlstate)[:2] in {"08", "53", "57", "40"}:
            raise
        raise SchemaMismatch(
            f"migration {migration.version:04} {migration.name} failed, nothing was changed: {error}"
        ) from error


async def check_schema(dsn: str, known: Sequence[Migration]) -> int:
    """Check that this release can work with the database's schema. Returns the schema's version.

    Raises:
        SchemaMismatch: with advice in the message.
        StoreUnavailable: PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                version, compatible_with = await _state(connection)
    _refuse_too_new(version, compatible_with, known)
    if version < known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {version}, this release needs {known[-1].version}: run `ingest migrate`"
        )
    return version


async def refuse_closed_schema(connection: asyncpg.Connection) -> None:
    """Raise an error if our tables exist but are invisible to a role without USAGE on their schema.

    Raises:
        SchemaMismatch: our role may not use a schema that contains the tables.
    """
    for closed in await connection.fetch(_CLOSED_SCHEMA):
        raise SchemaMismatch(
            f"the role {closed['role']} lacks USAGE on the schema {closed['name']}, which contains the tables:"
            f" as their owner, run `ingest migrate --runtime-role {closed['role']}`"
        )


async def _state(connection: asyncpg.Connection) -> tuple[int, int]:
    """Return the version of the schema, and the oldest version whose releases can work with it."""
    if not await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
        await refuse_closed_schema(connection)
        return 0, 0
    [(version, compatible_with)] = await connection.fetch(_STATE)
    return version, compatible_with


def _refuse_too_new(version: int, compatible_with: int, known: Sequence[Migration]) -> None:
    if compatible_with > known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {version}, which requires a release that supports version"
            f" {compatible_with}, but this release supports only up to {known[-1].version}:"
            " use a newer release of order-ingest"
        )
