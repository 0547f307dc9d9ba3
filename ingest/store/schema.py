"""The schema's versions: numbered SQL files, each applied once.

All pending files are applied in one transaction under an advisory lock. A second process waits, then finds nothing left
to do; a crash in between leaves the schema as it was.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from ingest.domain.errors import UserError
from ingest.store.connection import connect, translated

# Any constant will do; this one is "ingest" in ASCII.
_LOCK = 0x696E67657374
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
    ("INSERT", "audit_log"),
    ("SELECT", "schema_migrations"),
)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class SchemaMismatch(UserError):
    """The database's schema is not the one that this release works with."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    version: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    found = []
    for file in (files(__package__) / "migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


async def migrate(
    dsn: str, known: Sequence[Migration], runtime_role: str | None = None, api_role: str | None = None
) -> list[Migration]:
    """Bring the schema up to date; return the migrations that this call applied.

    Args:
        dsn: with a role that owns the tables, or may create them.
        known: all migrations of this release, in order.
        runtime_role: a role to be granted what the workers and `ingest status` need, and nothing more.
        api_role: a role to be granted what the HTTP API needs, and nothing more.

    Raises:
        SchemaMismatch: if the database is newer than `known`, or a migration fails.
        StoreRefused: if there is no such role, or the DSN's role may not grant rights on the tables.
        StoreUnavailable: if PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                # Waiting for another migration may take longer than any command should.
                await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=3600)
                await connection.execute(
                    "CREATE TABLE IF NOT EXISTS schema_migrations"
                    " (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
                )
                current = await _current(connection)
                _refuse_newer(current, known)
                pending = [migration for migration in known if migration.version > current]
                for migration in pending:
                    await _apply(connection, migration)
                for role, privileges in ((runtime_role, RUNTIME_PRIVILEGES), (api_role, API_PRIVILEGES)):
                    if role is not None:
                        await _grant(connection, role, privileges)
    return pending


async def _grant(connection: asyncpg.Connection, role: str, granted: Sequence[tuple[str, str]]) -> None:
    # GRANT takes no parameters: the server itself quotes the name.
    quoted = await connection.fetchval("SELECT quote_ident($1)", role)
    schema = await connection.fetchval("SELECT quote_ident(current_schema())")
    await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {quoted}")
    for privileges, table in granted:
        await connection.execute(f"GRANT {privileges} ON {table} TO {quoted}")


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    try:
        await connection.execute(migration.sql, timeout=3600)
        await connection.execute(
            "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", migration.version, migration.name
        )
    except asyncpg.PostgresError as error:
        # Connection lost, out of resources, stopped by an operator, deadlock: not the migration's fault.
        if str(error.sqlstate)[:2] in {"08", "53", "57", "40"}:
            raise
        raise SchemaMismatch(
            f"migration {migration.version:04} {migration.name} failed, nothing was changed: {error}"
        ) from error


async def check_schema(dsn: str, known: Sequence[Migration]) -> None:
    """Check that the database has this release's schema.

    Raises:
        SchemaMismatch: the message says what to do.
        StoreUnavailable: if PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction():
                current = await _current(connection)
    _refuse_newer(current, known)
    if current < known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {current}, this release needs {known[-1].version}: run `ingest migrate`"
        )


async def _current(connection: asyncpg.Connection) -> int:
    exists = await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
    return int(await connection.fetchval("SELECT max(version) FROM schema_migrations") or 0) if exists else 0


def _refuse_newer(current: int, known: Sequence[Migration]) -> None:
    if current > known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {current}, but this release knows only up to {known[-1].version}:"
            " use a newer release of order-ingest"
        )
