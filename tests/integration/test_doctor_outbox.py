"""`ingest doctor` reports whether a real outbox can be relayed, and whether a relay is running."""

from collections.abc import AsyncIterator, Iterator

import pytest
from set_ups import SetUp, database, role
from shipped import as_account, as_admin
from support import connected

from ingest.lab.servers import EmbeddedServers
from ingest.operations.doctor.finding import Area, Finding, Level
from ingest.store.outbox.outbox_schema import create_outbox

TABLE = "order_outbox"
OLD = "INSERT INTO order_outbox (order_id, created_at) VALUES ('A-1', now() - interval '2 minutes'), ('A-2', now())"


@pytest.fixture
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture
def shop_dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    """A program's own database, for its owner."""
    with database(own_servers, migrated=False) as dsn:
        yield as_admin(dsn)


@pytest.fixture
async def set_up(own_servers: EmbeddedServers, dsn: str, queue_name: str) -> AsyncIterator[SetUp]:
    async with SetUp.sound(as_account(own_servers.redis_url, "ingest"), dsn, queue_name) as set_up:
        yield set_up


async def execute(dsn: str, statement: str) -> None:
    async with connected(dsn) as sql:
        await sql.execute(statement)


async def of_outbox(set_up: SetUp, **settings: str) -> list[Finding]:
    return [finding for finding in await set_up.examined(**settings) if finding.area is Area.OUTBOX]


async def test_without_an_outbox_nothing_is_said_of_one(set_up: SetUp) -> None:
    assert await of_outbox(set_up) == []


async def test_an_outbox_whose_rows_are_relayed_is_sound(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    await execute(shop_dsn, "INSERT INTO order_outbox (order_id) VALUES ('A-1')")

    found = await of_outbox(set_up, outbox_dsn=shop_dsn)

    assert [(finding.level, finding.what) for finding in found] == [
        ("ok", "the table order_outbox meets the needs of a relay"),
        ("ok", "no row has waited for more than a minute"),
    ]


async def test_rows_that_nobody_relays_are_a_warning(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    await execute(shop_dsn, OLD)

    (warning,) = await set_up.warnings(Area.OUTBOX, outbox_dsn=shop_dsn)

    assert warning == "2 rows wait in order_outbox, the oldest for 120 s"


async def test_rows_of_no_configured_source_are_a_warning_of_their_own(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    await execute(shop_dsn, OLD + "; UPDATE order_outbox SET source = 'shop-it'")

    (warning,) = await set_up.warnings(Area.OUTBOX, outbox_dsn=shop_dsn)

    assert (
        warning
        == "2 of the rows in order_outbox belong to no configured source, such as 'shop-it', and are not relayed"
    )


async def test_rows_that_cannot_be_announced_do_not_wait(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    await execute(shop_dsn, OLD + "; UPDATE order_outbox SET error = 'done'")

    assert await set_up.warnings(Area.OUTBOX, outbox_dsn=shop_dsn) == []


async def test_an_outbox_among_the_orders_is_found_without_its_setting(set_up: SetUp, dsn: str) -> None:
    owner = as_admin(dsn)
    await create_outbox(owner, TABLE, None)
    await execute(dsn, OLD)

    found = await set_up.examined(postgres_dsn=owner)
    (warning,) = [each.what for each in found if each.area is Area.OUTBOX and each.level is Level.WARNING]
    unread = await of_outbox(set_up)

    assert "2 rows wait in order_outbox" in warning
    assert unread == [], "a worker needs no right to it"


async def test_a_table_that_is_not_there_and_a_server_that_is_down_are_faults(set_up: SetUp, shop_dsn: str) -> None:
    (missing,) = await set_up.faults(Area.OUTBOX, outbox_dsn=shop_dsn)
    (elsewhere,) = await set_up.faults(Area.OUTBOX, outbox_dsn=shop_dsn, outbox_table="shop.orders_out")
    (down,) = await set_up.faults(Area.OUTBOX, outbox_dsn="postgresql://x:s3cr3t@127.0.0.1:1/x")

    assert missing == "there is no table order_outbox"
    assert elsewhere == "there is no table shop.orders_out"
    assert "unavailable" in down
    assert "s3cr3t" not in down


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("ALTER TABLE order_outbox DROP COLUMN announcement", "announcement"),
        ("ALTER TABLE order_outbox DROP COLUMN created_at", "created_at"),
        ("DROP TABLE order_outbox; CREATE VIEW order_outbox AS SELECT 1 AS id", "document"),
    ],
)
async def test_a_table_that_was_altered_is_a_fault(set_up: SetUp, shop_dsn: str, statement: str, named: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    await execute(shop_dsn, statement)

    (fault,) = await set_up.faults(Area.OUTBOX, outbox_dsn=shop_dsn)

    assert fault.startswith("order_outbox cannot be relayed: ")
    assert f'"{named}"' in fault


async def test_a_table_that_somebody_has_locked_is_a_fault(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    async with connected(shop_dsn) as sql, sql.transaction():
        await sql.execute("LOCK TABLE order_outbox")
        (fault,) = await set_up.faults(Area.OUTBOX, outbox_dsn=shop_dsn)

    assert fault == "another transaction has locked order_outbox, so no row is relayed"


async def test_rights_that_a_relays_role_lacks_are_named(set_up: SetUp, shop_dsn: str) -> None:
    await create_outbox(shop_dsn, TABLE, None)
    async with role(shop_dsn) as limited:
        name = limited.partition("://")[2].partition(":")[0]
        await execute(shop_dsn, f"GRANT SELECT, UPDATE (error) ON order_outbox TO {name}")
        (some,) = await set_up.faults(Area.OUTBOX, outbox_dsn=limited)
        await execute(shop_dsn, f"GRANT DELETE ON order_outbox TO {name}")
        enough = await set_up.warnings(Area.OUTBOX, outbox_dsn=limited)
        await execute(shop_dsn, f"REVOKE ALL ON order_outbox FROM {name}; GRANT SELECT ON order_outbox TO {name}")
        await execute(shop_dsn, f"REVOKE UPDATE (error) ON order_outbox FROM {name}")
        (most,) = await set_up.faults(Area.OUTBOX, outbox_dsn=limited)

    assert some == f"the role {name} lacks DELETE on order_outbox"
    assert enough == []
    assert most == f"the role {name} lacks DELETE, UPDATE (error) on order_outbox"
