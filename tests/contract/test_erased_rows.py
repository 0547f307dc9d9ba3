"""Rows are erased from a real database for good, or an error is raised."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from databases import erase
from set_ups import role
from shipped import as_account
from support import INSERT_ORDER, connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connections.connection import Reconnecting
from ingest.store.connections.translation import StoreRefused
from ingest.store.orders.order_store import OrderStore
from ingest.store.schema import migrate, migrations

DOCUMENT = b'{"id":"a","status":"placed","currency":"GBP","placed_at":"2010-12-01T08:26:00Z","lines":[]}'
# Changes of the database that prevent the erasure of rows, and the reported errors.
PREVENTED = {
    "another table refers to the order": (
        "CREATE TABLE invoices (shop text, id text, FOREIGN KEY (shop, id) REFERENCES orders);INSERT INTO invoices SELECT '', 'a'",
        'violates foreign key constraint "invoices_shop_id_fkey',
    ),
    "a trigger that skips the deletion": (
        "CREATE TRIGGER skips BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION skip()",
        "a trigger or a rule",
    ),
    "a rule that skips the deletion": (
        "CREATE RULE skips AS ON DELETE TO orders DO INSTEAD NOTHING",
        "a trigger or a rule",
    ),
    "a trigger that keeps orders out of the erased ones": (
        "CREATE TRIGGER skips BEFORE INSERT ON erased_orders FOR EACH ROW EXECUTE FUNCTION skip()",
        "a trigger or a rule",
    ),
    "a trigger that raises": (
        "CREATE TRIGGER raises BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse()",
        r"raised an error \(P0001\)",
    ),
    "row-level security that hides orders": (
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        'row-level security policy for table "orders"',
    ),
    "row-level security that hides erased orders": (
        "ALTER TABLE erased_orders ENABLE ROW LEVEL SECURITY",
        'row-level security policy for table "erased_orders"',
    ),
}


@pytest.fixture
def dsn(either_dsn: str) -> str:
    return either_dsn


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[Any]:
    async with connected(dsn) as connection:
        await connection.execute(INSERT_ORDER, "a")
        await connection.execute(
            "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not in this database'; END $$"
        )
        yield connection


@pytest.fixture
async def api_dsn(dsn: str) -> AsyncIterator[str]:
    """The DSN of a role with the rights of the HTTP API."""
    async with role(dsn) as limited:
        await migrate(
            as_account(dsn, "ingest_owner"), migrations(), api_role=limited.partition("://")[2].partition(":")[0]
        )
        yield limited


@pytest.mark.parametrize("how", PREVENTED)
async def test_an_erasure_that_the_database_prevents_is_refused_and_changes_nothing(
    sql: asyncpg.Connection, api_dsn: str, how: str
) -> None:
    preventing, told = PREVENTED[how]
    await sql.execute(preventing)

    with pytest.raises(StoreRefused, match=told):
        await erase(api_dsn, "a", "b")

    counts = (
        "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM erased_orders), (SELECT count(*) FROM audit_log)"
    )
    assert tuple(await sql.fetchrow(counts)) == (1, 0, 0)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_a_batch_that_has_waited_for_an_erasure_finds_it_whatever_the_usual_isolation_level_is(
    sql: asyncpg.Connection, dsn: str, isolation: str, *, pooled: bool
) -> None:
    await sql.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET default_transaction_isolation = '{isolation}'")
    connection = Reconnecting(dsn, pooled=pooled)
    store = OrderStore(connection)
    await store.upsert([])
    now = datetime.now(UTC)
    row = OrderRow.of(decode_order(DOCUMENT, "a"), now, attempts=1, enqueued_at=now.timestamp())
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE")

    storing = asyncio.create_task(store.upsert([row]))
    async with connected(dsn) as other:
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted)"
        await eventually(lambda: other.fetchval(waiting))
    await sql.execute("INSERT INTO erased_orders VALUES ('a'); DELETE FROM orders")
    await transaction.commit()

    assert await storing == [Effect.ERASED]
    connection.close()
    assert await sql.fetchval("SELECT count(*) FROM orders") == 0
