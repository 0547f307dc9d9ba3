"""The schema's versions on a real server. Each migration runs once, all or nothing, or fails with a clear message."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from shipped import as_account
from support import connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import AccessDenied, ConfigError, UserError
from ingest.domain.orders.comparison import StoredOrder
from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connections.pool import Pool
from ingest.store.connections.translation import StoreRefused
from ingest.store.orders.columns import COLUMNS
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import overview
from ingest.store.orders.versions import reset_versions
from ingest.store.schema import Migration, SchemaMismatch, check_schema, is_contracted, migrate, migrations

KNOWN = migrations()
NEXT = Migration(KNOWN[-1].version + 1, "next", "CREATE TABLE next_one ()")
EXPANDED = msgspec.structs.replace(NEXT, compatible_with=KNOWN[-1].version)
# The schema of the first release.
_FIRST_RELEASE = 3
DOCUMENT = b'{"id":"a","status":"placed","currency":"GBP","placed_at":"2010-12-01T08:26:00Z","lines":[]}'


@pytest.fixture
def dsn(either_dsn: str) -> str:
    """For the owner of the tables, who migrates."""
    return as_account(either_dsn, "ingest_owner")


async def tables(dsn: str) -> set[str]:
    async with connected(dsn) as sql:
        return {record[0] for record in await sql.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


@asynccontextmanager
async def role(dsn: str) -> AsyncIterator[tuple[str, str]]:
    """The name and the DSN of a role that may only log in."""
    name = f"role_{secrets.token_hex(6)}"
    parts = urlsplit(dsn)
    async with connected(dsn) as sql:
        await sql.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
        await sql.execute(f"GRANT CONNECT ON DATABASE {parts.path[1:]} TO {name}")
        try:
            yield name, urlunsplit(parts._replace(netloc=f"{name}:pw@{parts.hostname}:{parts.port}"))
        finally:
            await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.version for migration in KNOWN] == list(range(1, len(KNOWN) + 1))


async def test_an_empty_database_gets_everything_and_then_nothing_more(empty_dsn: str) -> None:
    first, second = await migrate(empty_dsn, KNOWN), await migrate(empty_dsn, KNOWN)

    assert (first, second) == (KNOWN, [])
    assert {"orders", "erased_orders", "schema_migrations"} <= await tables(empty_dsn)
    await check_schema(empty_dsn, KNOWN)


async def test_the_declared_columns_are_those_of_the_table(dsn: str) -> None:
    async with connected(dsn) as sql:
        found = await sql.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum"
        )

    assert [record["attname"] for record in found] == [column.name for column in COLUMNS]
    assert {field.name for field in fields(StoredOrder)} <= {column.name for column in COLUMNS}


async def test_a_fractional_quantity_can_be_queried_and_the_view_keeps_its_privileges(empty_dsn: str) -> None:
    await migrate(empty_dsn, KNOWN[:1])
    async with connected(empty_dsn) as sql:
        await sql.execute(
            "GRANT SELECT ON order_lines TO PUBLIC; GRANT SELECT ON order_lines TO pg_monitor WITH GRANT OPTION"
        )
        privileges = "SELECT relacl::text FROM pg_class WHERE oid = 'order_lines'::regclass"
        before = await sql.fetchval(privileges)

        await migrate(empty_dsn, KNOWN)

        assert await sql.fetchval(privileges) == before
        await sql.execute(
            "INSERT INTO orders SELECT 'a', 's', 'GBP', NULL, NULL, now(), NULL, 1, 3, $1::jsonb, now(), now(), 1, now(), now()",
            '[{"sku": "x", "quantity": "1.5", "unit_price": "2"}]',
        )
        assert await sql.fetchval("SELECT quantity FROM order_lines") == Decimal("1.5")


async def test_a_database_of_an_older_release_gets_what_is_new(dsn: str) -> None:
    assert await migrate(dsn, [*KNOWN, NEXT]) == [NEXT]
    assert "next_one" in await tables(dsn)


MIGRATING = """
import asyncio, sys
from ingest.store.schema import migrate, migrations
print(len(asyncio.run(migrate(sys.argv[1], migrations()))))
"""


def test_processes_that_migrate_at_once_apply_each_migration_once(empty_dsn: str) -> None:
    command = [sys.executable, "-c", MIGRATING, empty_dsn]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]

    applied = sorted(int(process.communicate(timeout=60)[0]) for process in processes)

    assert applied == [0, 0, 0, len(KNOWN)]
    assert asyncio.run(migrate(empty_dsn, KNOWN)) == []


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_migration_that_has_waited_for_another_sees_what_that_one_has_done(
    empty_dsn: str, isolation: str
) -> None:
    async with connected(empty_dsn) as sql:
        await sql.execute(
            f"ALTER DATABASE {empty_dsn.rpartition('/')[2]} SET default_transaction_isolation = '{isolation}'"
        )
        await sql.execute("SELECT pg_advisory_lock(x'696E676D6967'::bigint)")
        first, second = (asyncio.create_task(migrate(empty_dsn, KNOWN)) for _ in range(2))
        waiting = "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await eventually(lambda: sql.fetchval(waiting))

        await sql.execute("SELECT pg_advisory_unlock_all()")

        assert sorted(map(len, await asyncio.gather(first, second))) == [0, len(KNOWN)]


async def test_a_newer_schema_is_refused_and_left_alone(dsn: str) -> None:
    await migrate(dsn, [*KNOWN, NEXT])

    for call in (migrate, check_schema):
        with pytest.raises(SchemaMismatch, match="newer release"):
            await call(dsn, KNOWN)


async def test_a_newer_schema_that_is_only_expanded_is_accepted_and_left_alone(dsn: str) -> None:
    await migrate(dsn, [*KNOWN, EXPANDED])
    before = await tables(dsn)

    assert await check_schema(dsn, KNOWN) == EXPANDED.version
    assert await migrate(dsn, KNOWN) == []
    assert await tables(dsn) == before
    assert await check_schema(dsn, [*KNOWN, EXPANDED]) == EXPANDED.version


async def test_of_several_newer_migrations_one_that_is_not_compatible_is_enough_to_be_refused(dsn: str) -> None:
    contracted = Migration(EXPANDED.version + 1, "contracted", "SELECT 1", compatible_with=EXPANDED.version)
    expanded_again = Migration(contracted.version + 1, "expanded_again", "SELECT 1", compatible_with=KNOWN[-1].version)
    await migrate(dsn, [*KNOWN, EXPANDED, contracted, expanded_again])

    with pytest.raises(
        SchemaMismatch, match=f"version {expanded_again.version}, .* supports version {EXPANDED.version}"
    ):
        await check_schema(dsn, KNOWN)

    assert await check_schema(dsn, [*KNOWN, EXPANDED]) == expanded_again.version


async def test_a_record_of_migrations_without_the_newest_column_is_read_and_completed(empty_dsn: str) -> None:
    async with connected(empty_dsn) as sql:
        await sql.execute("SET ROLE ingest_owner")
        await sql.execute(
            "CREATE TABLE schema_migrations"
            " (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        for migration in KNOWN[:_FIRST_RELEASE]:
            await sql.execute(migration.sql)
            await sql.execute(
                "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", migration.version, migration.name
            )

    with pytest.raises(SchemaMismatch, match="ingest migrate"):
        await check_schema(empty_dsn, KNOWN)
    expanding = [migration for migration in KNOWN[_FIRST_RELEASE:] if not migration.contracts]
    assert await migrate(empty_dsn, [*KNOWN, EXPANDED]) == [*expanding, EXPANDED]

    assert await check_schema(empty_dsn, KNOWN) == EXPANDED.version


async def test_what_only_the_previous_release_needs_is_removed_on_request_whatever_follows_it(empty_dsn: str) -> None:
    contracting = [migration for migration in KNOWN if migration.contracts]
    await migrate(empty_dsn, KNOWN[:_FIRST_RELEASE])
    await migrate(empty_dsn, KNOWN)

    assert not await is_contracted(empty_dsn, KNOWN)
    with pytest.raises(ConfigError, match="--contract"):
        await check_schema(empty_dsn, KNOWN, has_sources=True)
    assert await migrate(empty_dsn, KNOWN, contract=True) == contracting

    assert await is_contracted(empty_dsn, KNOWN)
    assert await check_schema(empty_dsn, KNOWN, has_sources=True) == KNOWN[-1].version


def test_a_file_tells_which_releases_can_work_with_its_result() -> None:
    assert {migration.compatible_with for migration in KNOWN[:_FIRST_RELEASE]} == {None}, "nothing older was released"
    for migration in KNOWN[_FIRST_RELEASE:]:
        oldest = migration.compatible_with
        assert oldest is not None, (
            f"{migration.name}: begin it with `-- compatible with: N`, see docs/contribute/compatibility.md"
        )
        assert _FIRST_RELEASE <= oldest <= migration.version


async def test_an_older_schema_is_told_what_to_run(empty_dsn: str, dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="ingest migrate"):
        await check_schema(empty_dsn, KNOWN)
    with pytest.raises(SchemaMismatch, match="ingest migrate"):
        await check_schema(dsn, [*KNOWN, NEXT])
    assert await tables(empty_dsn) == set()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE half (); SELECT no_such_column",
        "CREATE TABLE half (); CREATE TABEL x ()",
        "CREATE TABLE half (); SELECT 1 / 0",
        "CREATE TABLE half (); INSERT INTO schema_migrations (version, name) VALUES (1, 'again')",
        "CREATE TABLE half (); DO $$ BEGIN RAISE EXCEPTION 'data does not fit'; END $$",
        "CREATE TABLE half (); CREATE INDEX CONCURRENTLY i ON orders (status)",
    ],
    ids=["unknown column", "syntax", "data", "constraint", "raised", "not in a transaction"],
)
async def test_a_migration_that_fails_changes_nothing_and_is_named(dsn: str, sql: str) -> None:
    before = await tables(dsn)

    with pytest.raises(SchemaMismatch, match=f"{NEXT.version:04} broken"):
        await migrate(dsn, [*KNOWN, Migration(NEXT.version, "broken", sql)])

    assert await tables(dsn) == before
    await check_schema(dsn, KNOWN)


async def test_a_migration_does_not_wait_long_for_a_table_in_use_as_workers_would_wait_behind_it(dsn: str) -> None:
    change = Migration(NEXT.version, "waiting", "ALTER TABLE orders ADD COLUMN later text")
    async with connected(dsn) as reader, reader.transaction():
        await reader.fetch("SELECT FROM orders")

        with pytest.raises(SchemaMismatch, match="another transaction uses a table"):
            await migrate(dsn, [*KNOWN, change], lock_seconds=0.2)

    assert await migrate(dsn, [*KNOWN, change]) == [change]


async def test_of_several_migrations_those_before_one_that_fails_stay_and_the_next_call_continues(
    empty_dsn: str,
) -> None:
    with pytest.raises(SchemaMismatch):
        await migrate(empty_dsn, [*KNOWN, Migration(NEXT.version, "broken", "SELECT 1 / 0")])

    assert await migrate(empty_dsn, [*KNOWN, NEXT]) == [NEXT]


async def test_a_runtime_role_can_do_a_workers_work(dsn: str) -> None:
    async with role(dsn) as (name, limited):
        await migrate(dsn, KNOWN, runtime_role=name)

        await check_schema(limited, KNOWN)
        async with OrderStore.open(limited) as store:
            order_row = OrderRow.of(decode_order(DOCUMENT, "a"), datetime.now(UTC), 1, 1.0)
            effects = await store.upsert([order_row])
        stored = (await overview(limited)).stored

    assert (effects, stored) == ([Effect.INSERTED], 1)


_AUDITED = "operation, phase, actor, action, selection"
_AUDIT = "gen_random_uuid(), 'begun', 'me', 'orders.erase', '{}'"


async def test_an_api_role_that_could_backdate_the_audit_log_cannot_after_a_migration(dsn: str) -> None:
    async with role(dsn) as (name, limited):
        await migrate(dsn, KNOWN, api_role=name)
        async with connected(dsn) as owner:
            await owner.execute(f'GRANT INSERT ON audit_log TO "{name}"')

        await migrate(dsn, KNOWN, api_role=name)

        async with connected(limited) as api:
            await api.execute(f"INSERT INTO audit_log ({_AUDITED}) VALUES ({_AUDIT})")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await api.execute(f"INSERT INTO audit_log (at, {_AUDITED}) VALUES (now(), {_AUDIT})")


async def test_an_api_role_can_request_that_an_order_is_fetched_again(dsn: str) -> None:
    async with role(dsn) as (name, limited):
        await migrate(dsn, KNOWN, api_role=name)
        async with OrderStore.open(dsn) as store:
            await store.upsert([OrderRow.of(decode_order(DOCUMENT, "a"), datetime.now(UTC), 1, 1.0)])

        async with Pool.open(limited, size=1) as pool:
            assert await reset_versions(pool, ["a"]) == 1


async def test_an_api_role_can_read_and_erase(dsn: str) -> None:
    async with role(dsn) as (name, limited):
        await migrate(dsn, KNOWN, api_role=name)

        await check_schema(limited, KNOWN)
        async with OrderStore.open(dsn) as store:
            await store.upsert([OrderRow.of(decode_order(DOCUMENT, "a"), datetime.now(UTC), 1, 1.0)])
        async with Pool.open(limited, size=1) as pool:
            erased = await erase_rows(pool, ["a", "b"], operation=uuid4(), actor="me", action="orders.erase")
        async with connected(dsn) as owner:
            tombstones = await owner.fetch("SELECT order_id FROM erased_orders ORDER BY order_id")
            rows = await owner.fetch("SELECT phase, actor, count FROM audit_log")

    assert (erased, [row["order_id"] for row in tombstones]) == (1, ["a", "b"])
    assert [tuple(row) for row in rows] == [("begun", "me", 1)]


DENIED = {
    "runtime_role": [
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN x text",
        "CREATE INDEX ON orders (status)",
        "CREATE TABLE x ()",
        "CREATE TRIGGER t BEFORE INSERT ON orders EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "TRUNCATE orders",
        "DELETE FROM orders",
        "DELETE FROM erased_orders",
        "INSERT INTO erased_orders (order_id) VALUES ('a')",
        "DELETE FROM audit_log",
        "UPDATE schema_migrations SET version = 9",
    ],
    "api_role": [
        "DROP TABLE orders",
        "TRUNCATE orders",
        "UPDATE orders SET status = 'x'",
        "INSERT INTO orders (order_id) VALUES ('a')",
        "DELETE FROM erased_orders",
        "UPDATE erased_orders SET erased_at = now()",
        "DELETE FROM audit_log",
        "UPDATE audit_log SET actor = 'somebody else'",
        "TRUNCATE audit_log",
        f"INSERT INTO audit_log (at, {_AUDITED}) VALUES (now() - interval '1 day', {_AUDIT})",
        f"INSERT INTO audit_log (id, {_AUDITED}) OVERRIDING SYSTEM VALUE VALUES (1, {_AUDIT})",
        "UPDATE schema_migrations SET version = 9",
    ],
}


@pytest.mark.parametrize("option", DENIED)
async def test_a_role_can_do_nothing_else(dsn: str, option: str) -> None:
    async with role(dsn) as (name, limited):
        await migrate(dsn, KNOWN, **{option: name})

        async with connected(limited) as sql:
            for statement in DENIED[option]:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await sql.execute(statement)


async def test_a_runtime_role_that_does_not_exist_is_told_and_nothing_is_migrated(empty_dsn: str) -> None:
    with pytest.raises(UserError, match='role "No such; role" does not exist'):
        await migrate(empty_dsn, KNOWN, runtime_role="No such; role")

    assert await tables(empty_dsn) == set()


@pytest.mark.parametrize("option", ["runtime_role", "api_role"])
async def test_a_role_whose_name_is_not_text_is_told_and_nothing_is_migrated(empty_dsn: str, option: str) -> None:
    with pytest.raises(UserError, match=r"role 'a\\udcff' does not exist"):
        await migrate(empty_dsn, KNOWN, **{option: "a\udcff"})

    assert await tables(empty_dsn) == set()


async def test_a_role_that_may_not_create_tables_is_told_so(empty_dsn: str) -> None:
    async with role(empty_dsn) as (name, limited), connected(empty_dsn) as sql:
        await sql.execute(f"GRANT USAGE ON SCHEMA public TO {name}")
        with pytest.raises(AccessDenied, match="permission denied for schema public"):
            await migrate(limited, KNOWN)


async def test_a_database_without_a_schema_for_the_tables_is_told_so(empty_dsn: str) -> None:
    async with connected(empty_dsn) as sql:
        await sql.execute("DROP SCHEMA public")

    with pytest.raises(StoreRefused, match="no schema has been selected to create in"):
        await migrate(empty_dsn, KNOWN)


async def test_a_role_that_may_not_read_the_schemas_version_is_told_so(dsn: str) -> None:
    async with role(dsn) as (name, limited), connected(dsn) as sql:
        await sql.execute(f"GRANT USAGE ON SCHEMA public TO {name}")
        with pytest.raises(AccessDenied, match="permission denied for table schema_migrations"):
            await check_schema(limited, KNOWN)


async def test_a_role_that_may_not_use_the_tables_schema_is_told_so_and_not_that_there_are_none(dsn: str) -> None:
    async with role(dsn) as (name, limited), connected(dsn) as sql:
        await sql.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")

        for look in (check_schema(limited, KNOWN), overview(limited)):
            with pytest.raises(SchemaMismatch, match=f"the role {name} lacks USAGE on the schema public"):
                await look
