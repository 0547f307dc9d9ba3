"""Rows are erased from a real database for good, or it is said that they are not."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from set_ups import role
from support import INSERT_ORDER, connected

from ingest.store.connection import StoreRefused
from ingest.store.erasing import erase_rows
from ingest.store.schema import migrate, migrations

# What somebody may have done to the database so that rows are not erased, and what of it is told.
PREVENTED = {
    "another table refers to the order": (
        "CREATE TABLE invoices (order_id text REFERENCES orders); INSERT INTO invoices VALUES ('a')",
        'violates foreign key constraint "invoices_order_id_fkey"',
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
        "not in this database",
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
        await migrate(dsn, migrations(), api_role=limited.partition("://")[2].partition(":")[0])
        yield limited


async def erase(dsn: str, *order_ids: str) -> int:
    return await erase_rows(dsn, order_ids, operation=uuid4(), actor="me", action="orders.erase")


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
