"""Migrates the schema with numbered SQL files, each applied once.

One process migrates while others wait for its advisory lock. A file is one transaction. If it fails or the process dies, the files
before it stay applied, and the next call continues. The first lines of a file may be:

* `-- compatible with: N`: the file only expands the schema. Releases whose last migration is N or later can work with the result. The
  database stores N, so that a release can detect whether it supports a newer schema. Without this line, a migration requires its own
  release or a later one.
* `-- statement by statement`: each statement is its own transaction, such as `CREATE INDEX CONCURRENTLY`. A statement ends with a
  semicolon at the end of a line. After a crash they all run again, so they tolerate their own results.
* `-- contracts`: the file removes a part of the schema that only the previous release needs. Files of this kind wait until
  `migrate` is told to contract. A new database gets them immediately.
"""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import asyncpg
import msgspec

from ingest.domain.errors import ConfigError, UserError
from ingest.store.connections.connection import connect, transaction
from ingest.store.connections.translation import translated
from ingest.store.migrating import LOCK_SECONDS, migrating_alone, run_in_transaction
from ingest.store.privileges import API_PRIVILEGES, RUNTIME_PRIVILEGES, grant, quoted_role

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_COMPATIBLE = re.compile(r"^-- compatible with: (\d+)$", re.MULTILINE)
_BY_STATEMENT = "-- statement by statement\n"
_CONTRACTS = "-- contracts\n"
# Read through to_jsonb because the table of an earlier release lacks the column `compatible_with`.
_STATE = """
SELECT coalesce(array_agg(version), '{}') AS versions,
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


class _State(NamedTuple):
    """The migrations that the database has, and the oldest version whose releases can work with it."""

    versions: frozenset[int]
    compatible_with: int

    @property
    def newest(self) -> int:
        return max(self.versions, default=0)

    def missing(self, known: Sequence["Migration"], *, contract: bool) -> list["Migration"]:
        """Return the migrations that the database lacks. Those that contract it only on request."""
        return [each for each in known if each.version not in self.versions and (contract or not each.contracts)]


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema.

    Attributes:
        compatible_with: the oldest last migration of releases that can work with the schema after this step. None if only
            releases that include this step can.
        by_statement: whether each statement is its own transaction.
        contracts: whether it removes a part of the schema that only the previous release needs.
    """

    version: int
    name: str
    sql: str
    compatible_with: int | None = None
    by_statement: bool = False
    contracts: bool = False


def migrations() -> list[Migration]:
    """Return all migrations of this release, in order."""
    found = []
    for file in (files(__package__) / "migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            sql = file.read_text(encoding="utf-8")
            compatible = _COMPATIBLE.search(sql)
            oldest = int(compatible[1]) if compatible else None
            found.append(Migration(int(match[1]), match[2], sql, oldest, _BY_STATEMENT in sql, _CONTRACTS in sql))
    return sorted(found, key=lambda migration: migration.version)


async def migrate(
    dsn: str,
    known: Sequence[Migration],
    runtime_role: str | None = None,
    api_role: str | None = None,
    *,
    contract: bool = False,
    lock_seconds: float = LOCK_SECONDS,
) -> list[Migration]:
    """Bring the schema up to date. Returns the migrations that this call applied.

    A newer compatible schema stays unchanged. Rights are granted in either case.

    Args:
        dsn: DSN with a role that owns the tables or may create them.
        known: all migrations of this release, in order.
        runtime_role: role that receives exactly the rights of workers and `ingest status`.
        api_role: role that receives exactly the rights of the HTTP API.
        contract: also remove the parts that only the previous release needs.
        lock_seconds: how long an attempt may wait for a table that another transaction uses.

    Raises:
        SchemaMismatch: the database is too new for this release, or a migration fails.
        StoreRefused: a role does not exist, or the DSN's role may not grant rights on the tables.
        StoreUnavailable: PostgreSQL cannot be reached.
    """
    async with migrating_alone(dsn), connect(dsn) as connection:
        with translated():
            async with connection.transaction(isolation="read_committed"):
                roles = [
                    (await quoted_role(connection, role), privileges)
                    for role, privileges in ((runtime_role, RUNTIME_PRIVILEGES), (api_role, API_PRIVILEGES))
                    if role is not None
                ]
                await _prepare_record(connection)
                state = await _state(connection)
                _refuse_too_new(state, known)
            pending = state.missing(known, contract=contract or not state.versions)
            for migration in pending:
                await _apply(connection, migration, lock_seconds)
            async with connection.transaction(isolation="read_committed"):
                await grant(connection, roles)
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


async def _apply(connection: asyncpg.Connection, migration: Migration, lock_seconds: float) -> None:
    oldest = "NULL" if migration.compatible_with is None else migration.compatible_with
    record = (
        "INSERT INTO schema_migrations (version, name, compatible_with)"  # noqa: S608  from the file's name and first line
        f" VALUES ({migration.version}, '{migration.name}', {oldest})"
    )
    try:
        if migration.by_statement:
            for statement in filter(str.strip, migration.sql.split(";\n")):
                await run_in_transaction(connection, statement, lock_seconds)
            await run_in_transaction(connection, record, lock_seconds)
        else:
            await run_in_transaction(connection, f"{migration.sql}\n;\n{record}", lock_seconds)
    except asyncpg.LockNotAvailableError as error:
        raise SchemaMismatch(
            f"migration {migration.version:04} {migration.name}: another transaction uses a table that it changes."
            " Run `ingest migrate` again when that has ended"
        ) from error
    except asyncpg.PostgresError as error:
        # Lost connection, lack of resources, operator intervention and deadlock are not caused by the migration.
        if str(error.sqlstate)[:2] in {"08", "53", "57", "40"}:
            raise
        raise SchemaMismatch(f"migration {migration.version:04} {migration.name} failed: {error}") from error


async def check_schema(dsn: str, known: Sequence[Migration], *, has_sources: bool = False) -> int:
    """Check that this release can work with the database's schema. Returns the schema's version.

    Args:
        dsn: DSN of the database.
        known: all migrations of this release, in order.
        has_sources: whether orders of named sources are to be stored, which the key of earlier releases prevents.

    Raises:
        SchemaMismatch: with advice in the message.
        ConfigError: `has_sources`, but the schema still has the key of earlier releases.
        StoreUnavailable: PostgreSQL cannot be reached.
    """
    async with connect(dsn) as connection:
        with translated():
            async with transaction(connection):
                state = await _state(connection)
    _refuse_too_new(state, known)
    if missing := state.missing(known, contract=False):
        raise SchemaMismatch(
            f"the database has schema version {state.newest}, this release needs {missing[-1].version}:"
            " run `ingest migrate`"
        )
    if has_sources and state.missing(known, contract=True):
        raise ConfigError(
            "INGEST_SOURCES: the tables still have the key of the previous release, in which two sources cannot have the"
            " same order ID. When only workers of this release run, run `ingest migrate --contract`"
        )
    return state.newest


async def is_contracted(dsn: str, known: Sequence[Migration]) -> bool:
    """Return whether the parts of the schema that only the previous release needs are gone. It raises as `connect`."""
    async with connect(dsn) as connection:
        with translated():
            async with transaction(connection):
                return not (await _state(connection)).missing(known, contract=True)


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


async def _state(connection: asyncpg.Connection) -> _State:
    if not await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
        await refuse_closed_schema(connection)
        return _State(frozenset(), 0)
    [(versions, compatible_with)] = await connection.fetch(_STATE)
    return _State(frozenset(versions), compatible_with)


def _refuse_too_new(state: _State, known: Sequence[Migration]) -> None:
    if state.compatible_with > known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {state.newest}, which requires a release that supports version"
            f" {state.compatible_with}, but this release supports only up to {known[-1].version}:"
            " use a newer release of order-ingest"
        )
