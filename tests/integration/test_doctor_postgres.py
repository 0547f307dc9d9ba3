"""`ingest doctor` reports each error of a real PostgreSQL."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from servers.standby import StandbyServer
from set_ups import SetUp, database, role
from shipped import as_account, as_admin
from support import INSERT_ORDER, connected, with_database

from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.operations.doctor.finding import Area
from ingest.store.partitioning.partitioning import set_partitions
from ingest.store.schema import migrate, migrations


@pytest.fixture
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture
async def set_up(own_servers: EmbeddedServers, dsn: str, queue_name: str) -> AsyncIterator[SetUp]:
    async with SetUp.sound(as_account(own_servers.redis_url, "ingest"), dsn, queue_name) as set_up:
        yield set_up


async def execute(dsn: str, *statements: str) -> None:
    async with connected(dsn) as sql:
        for statement in statements:
            await sql.execute(statement)


async def test_a_role_with_a_workers_rights_is_sound_and_a_superuser_a_warning(set_up: SetUp, dsn: str) -> None:
    async with role(dsn) as limited:
        await migrate(
            as_account(dsn, "ingest_owner"), migrations(), runtime_role=limited.partition("://")[2].partition(":")[0]
        )
        sound = await set_up.warnings(Area.POSTGRES, postgres_dsn=limited)
    shipped = await set_up.warnings(Area.POSTGRES)
    (warning,) = await set_up.warnings(Area.POSTGRES, postgres_dsn=as_admin(dsn))

    assert sound == shipped == []
    assert warning == "the role postgres is a superuser"


async def test_a_server_that_is_down_a_wrong_password_and_a_missing_database_are_faults(
    set_up: SetUp, dsn: str
) -> None:
    (down,) = await set_up.faults(Area.POSTGRES, postgres_dsn="postgresql://x:s3cr3t@127.0.0.1:1/x")
    async with role(dsn) as limited:
        (refused,) = await set_up.faults(Area.POSTGRES, postgres_dsn=limited.replace("s3cr3t", "wr0ng"))
    (missing,) = await set_up.faults(Area.POSTGRES, postgres_dsn=f"{dsn}_gone")

    assert "unavailable" in down
    assert "password authentication failed" in refused
    assert "does not exist" in missing
    assert not any(word in text for word in ("s3cr3t", "wr0ng") for text in (down, refused, missing))


async def test_a_login_that_a_trigger_refuses_is_a_fault(set_up: SetUp, dsn: str) -> None:
    """Its error looks like one about a row (P0001)."""
    async with role(dsn) as limited:
        name = limited.partition("://")[2].partition(":")[0]
        refusing = f"BEGIN IF session_user = '{name}' THEN RAISE EXCEPTION 'in maintenance'; END IF; END"
        await execute(
            dsn,
            f"CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $${refusing}$$",
            "CREATE EVENT TRIGGER refusing ON login EXECUTE FUNCTION refuse()",
        )
        (refused,) = await set_up.faults(Area.POSTGRES, postgres_dsn=limited)

    assert "PostgreSQL reports: in maintenance" in refused


async def test_a_database_without_tables_or_of_a_newer_release_is_a_fault(set_up: SetUp, dsn: str) -> None:
    await execute(dsn, "INSERT INTO schema_migrations (version, name) VALUES (9999, 'later')")
    (newer,) = await set_up.faults(Area.POSTGRES)
    await execute(dsn, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    (empty,) = await set_up.faults(Area.POSTGRES)

    assert "has schema version 9999" in newer
    assert "has schema version 0" in empty


async def test_columns_of_another_type_are_a_warning(set_up: SetUp, dsn: str) -> None:
    usual = await set_up.warnings(Area.POSTGRES)
    await execute(dsn, "ALTER TABLE orders ALTER total TYPE integer, ALTER status TYPE varchar(3)")

    (warning,) = await set_up.warnings(Area.POSTGRES)

    assert usual == []
    assert "status is character varying(3) instead of text, total is integer instead of numeric: values may" in warning


async def test_a_role_that_becomes_another_one_when_it_logs_in_is_examined_as_that(set_up: SetUp, dsn: str) -> None:
    async with role(dsn) as group, role(dsn, "CONNECTION LIMIT 7") as limited:
        shared, name = (one.partition("://")[2].partition(":")[0] for one in (group, limited))
        await migrate(as_account(dsn, "ingest_owner"), migrations(), runtime_role=shared)
        await execute(
            dsn, f"ALTER ROLE {shared} NOLOGIN; GRANT {shared} TO {name}; ALTER ROLE {name} SET role = {shared}"
        )
        found = await set_up.examined(postgres_dsn=limited)

    whats = [finding.what for finding in found if finding.area is Area.POSTGRES]
    assert f"the role {shared} is not a superuser" in whats
    assert "the schema matches this release, and the role may store orders" in whats
    assert any(" of 7 connections are in use" in what for what in whats)


async def test_privileges_that_the_role_lacks_are_named(set_up: SetUp, dsn: str) -> None:
    async with role(dsn) as limited:
        name = limited.partition("://")[2].partition(":")[0]
        await execute(dsn, f"GRANT SELECT ON schema_migrations, orders, order_lines TO {name}")
        (some,) = await set_up.faults(Area.POSTGRES, postgres_dsn=limited)
        await execute(dsn, f"REVOKE SELECT ON schema_migrations FROM {name}")
        without = await set_up.faults(Area.POSTGRES, postgres_dsn=limited)

    assert some.startswith(f"the role {name} lacks INSERT on orders, UPDATE on orders, SELECT on erased_orders, ")
    assert "UPDATE on credentials" in some
    assert any("SELECT on schema_migrations" in fault for fault in without)


async def test_a_schema_that_the_role_may_not_use_is_named(set_up: SetUp, dsn: str) -> None:
    async with role(dsn) as limited:
        await execute(dsn, f"REVOKE USAGE ON SCHEMA public FROM {limited.partition('://')[2].partition(':')[0]}")
        (closed,) = await set_up.faults(Area.POSTGRES, postgres_dsn=limited)

    assert "lacks USAGE on the schema public" in closed


@pytest.fixture
def old_dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    """A new database without our tables."""
    with database(own_servers, migrated=False) as dsn:
        yield dsn


async def test_a_key_that_only_the_release_before_needs_is_a_warning_until_it_is_gone(
    set_up: SetUp, old_dsn: str
) -> None:
    await migrate(old_dsn, migrations()[:3])
    await migrate(old_dsn, migrations())
    before = await set_up.warnings(Area.POSTGRES, postgres_dsn=old_dsn)
    await migrate(old_dsn, migrations(), contract=True)
    after = await set_up.warnings(Area.POSTGRES, postgres_dsn=old_dsn)

    assert [warning for warning in before if warning not in after] == [
        "the tables still have a key that only the previous release needs, so they cannot store several sources"
    ]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ALTER TABLE orders DROP COLUMN attributes", 'column "attributes" of relation "orders" does not exist'),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "ON CONFLICT"),
        ("ALTER TABLE orders ALTER COLUMN attempts TYPE jsonb USING '1'", '"attempts" is of type jsonb'),
        ("ALTER TABLE orders ADD COLUMN theirs text NOT NULL", "columns that need a value: theirs"),
    ],
)
async def test_what_somebody_has_changed_in_the_table_is_named(
    set_up: SetUp, dsn: str, change: str, named: str
) -> None:
    view = "CREATE VIEW order_lines AS SELECT 1", "GRANT SELECT ON order_lines TO ingest"
    await execute(dsn, "DROP VIEW order_lines", change, *view)

    (fault,) = await set_up.faults(Area.POSTGRES)

    assert named in fault


@pytest.mark.parametrize("change", ["ALTER TABLE {} RENAME TO hidden", "ALTER TABLE {} SET SCHEMA elsewhere"])
@pytest.mark.parametrize("table", ["orders", "erased_orders"])
async def test_a_table_that_the_role_does_not_find_is_named(set_up: SetUp, dsn: str, change: str, table: str) -> None:
    await execute(dsn, "CREATE SCHEMA elsewhere", change.format(table))

    (fault,) = await set_up.faults(Area.POSTGRES)

    assert fault == f"the role ingest does not find {table}"


@pytest.mark.parametrize("table", ["orders", "erased_orders"])
async def test_a_table_that_a_crash_empties_is_a_fault(set_up: SetUp, dsn: str, table: str) -> None:
    await execute(dsn, f"ALTER TABLE {table} SET UNLOGGED")

    (fault,) = await set_up.faults(Area.POSTGRES)

    assert fault == f"{table} is unlogged: a crash of PostgreSQL empties it"


@pytest.mark.parametrize(
    "as_what", ["TABLE orders (LIKE others) PARTITION BY HASH (order_id)", "VIEW orders AS TABLE others"]
)
async def test_what_is_no_ordinary_table_is_a_fault(set_up: SetUp, dsn: str, as_what: str) -> None:
    await execute(dsn, "ALTER TABLE orders RENAME TO others", f"CREATE {as_what}")
    if as_what.startswith("TABLE"):
        await execute(dsn, "ALTER TABLE orders ADD PRIMARY KEY (order_id)")

    faults = await set_up.faults(Area.POSTGRES)

    assert faults[0].startswith("orders is partitioned, a view or foreign")


async def test_partitions_are_reported_and_a_missing_one_or_an_incomplete_division_is_named(
    set_up: SetUp, dsn: str
) -> None:
    def interrupt(_: int) -> None:
        raise KeyError

    owner = as_account(dsn, "ingest_owner")
    await set_partitions(owner, 3)
    found = {finding.what for finding in await set_up.examined()}
    await execute(dsn, INSERT_ORDER.replace("$1", "'a'"))
    with pytest.raises(KeyError):
        await set_partitions(owner, 2, on_progress=interrupt)
    (incomplete,) = await set_up.warnings(Area.POSTGRES)
    await execute(dsn, "ALTER TABLE orders DETACH PARTITION orders_1")
    (missing,) = await set_up.faults(Area.POSTGRES)

    assert "orders is divided into 3 partitions" in found
    assert incomplete == "the division of orders into partitions is not complete, so every change is stored twice"
    assert missing == "a partition of orders is missing, so some orders cannot be stored"


@pytest.mark.parametrize("table", ["orders", "erased_orders"])
async def test_row_level_security_that_applies_to_the_role_is_a_warning(set_up: SetUp, dsn: str, table: str) -> None:
    async with role(dsn) as limited:
        name = limited.partition("://")[2].partition(":")[0]
        await migrate(as_account(dsn, "ingest_owner"), migrations(), runtime_role=name)
        await execute(dsn, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        (warning,) = await set_up.warnings(Area.POSTGRES, postgres_dsn=limited)
        await execute(dsn, f"ALTER ROLE {name} BYPASSRLS")
        without = await set_up.warnings(Area.POSTGRES, postgres_dsn=limited)

    assert warning.startswith(f"row-level security on {table} applies to the role {name}")
    assert without == []


@pytest.mark.parametrize("table", ["orders", "erased_orders"])
async def test_a_table_that_somebody_has_locked_is_a_fault(set_up: SetUp, dsn: str, table: str) -> None:
    async with connected(dsn) as blocker, blocker.transaction():
        await blocker.execute(f"LOCK TABLE {table}")

        (locked,) = await set_up.faults(Area.POSTGRES)
        (seen,) = await set_up.faults(Area.POSTGRES, postgres_dsn=as_admin(dsn))

    assert "another transaction has locked" in locked
    assert re.search(r"process \d+ of the role postgres$", locked), "roles do not see for how long others wait"
    assert re.search(r"process \d+ of the role postgres for \d+ s", seen)


async def test_a_database_that_takes_no_writes_is_a_fault(set_up: SetUp, dsn: str) -> None:
    await execute(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} SET default_transaction_read_only = on")

    (fault,) = await set_up.faults(Area.POSTGRES)

    assert fault == "transactions are read-only here"


async def faults_of(servers: EmbeddedServers, dsn: str) -> list[str]:
    async with SimulatedApi(Behaviour(any_id=True)) as api:
        settings = {"redis_url": servers.redis_url, "postgres_dsn": dsn, "upstream_url": api.url_template}
        return await SetUp(settings).faults(Area.POSTGRES)


def test_a_standby_is_a_fault(own_servers: EmbeddedServers, dsn: str) -> None:
    with TemporaryDirectory(prefix="ingest-") as folder:
        Path(folder).chmod(0o755)
        with StandbyServer(Path(folder) / "standby", own_servers.postgres) as standby:
            (fault,) = asyncio.run(faults_of(own_servers, with_database(standby.dsn, dsn.rpartition("/")[2])))

    assert fault == "is a standby, which does not accept writes"


def test_a_database_of_another_encoding_is_a_fault(own_servers: EmbeddedServers) -> None:
    with database(own_servers, options="ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'") as dsn:
        (fault,) = asyncio.run(faults_of(own_servers, dsn))

    assert "encoding is LATIN1" in fault


async def test_commits_that_a_crash_loses_are_a_warning_and_a_database_that_it_destroys_a_fault(
    set_up: SetUp, servers: EmbeddedServers, dsn: str
) -> None:
    await execute(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} SET synchronous_commit = off")
    warnings = await set_up.warnings(Area.POSTGRES)
    faults = await set_up.faults(
        Area.POSTGRES, postgres_dsn=f"{servers.postgres_dsn.rpartition('/')[0]}/template_ingest"
    )

    assert any("synchronous_commit is off" in warning for warning in warnings)
    assert any("fsync is off" in fault for fault in faults)


async def test_too_few_connections_for_the_workers_are_a_fault(set_up: SetUp, dsn: str) -> None:
    async with role(dsn, "CONNECTION LIMIT 4") as limited:
        await migrate(
            as_account(dsn, "ingest_owner"), migrations(), runtime_role=limited.partition("://")[2].partition(":")[0]
        )
        (fault,) = await set_up.faults(Area.POSTGRES, postgres_dsn=limited, processes=8)

    assert "of 4 connections are in use, and a worker needs 8" in fault


async def test_a_connection_limit_of_a_superuser_is_no_fault_as_it_does_not_apply(set_up: SetUp, dsn: str) -> None:
    async with role(dsn, "SUPERUSER CONNECTION LIMIT 0") as unlimited:
        warnings = await set_up.warnings(Area.POSTGRES, postgres_dsn=unlimited)

    assert all("is a superuser" in warning for warning in warnings)
