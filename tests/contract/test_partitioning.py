"""The table of orders is divided into partitions and joined again, also while others write, without a lost or an old row."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from contract.test_order_store import row
from set_ups import role
from shipped import as_account
from support import INSERT_ORDER, Cli, connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.store.connections.pool import Pool
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_reading import OrderReader
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import Rows
from ingest.store.partitioning.partitioning import PartitioningRefused, set_partitions
from ingest.store.schema import Migration, migrate, migrations

KNOWN = migrations()
ROWS = 12_000
FILL = INSERT_ORDER.replace("SELECT $1", "SELECT n::text") + f", generate_series(1, {ROWS}) AS n"
INDEX = "CREATE UNIQUE INDEX CONCURRENTLY orders_by_status ON orders (status, source, order_id)"
LATER = Migration(
    KNOWN[-1].version + 1,
    "later",
    "-- statement by statement\nALTER TABLE orders ADD COLUMN IF NOT EXISTS later text NOT NULL DEFAULT 'x';\n"
    f"DROP INDEX CONCURRENTLY IF EXISTS orders_by_status;\n{INDEX};\n",
    by_statement=True,
)


@pytest.fixture
def dsn(dsn: str) -> str:
    """For the owner of the tables, who divides them."""
    return as_account(dsn, "ingest_owner")


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[Any]:
    async with connected(dsn) as connection:
        yield connection


async def form(sql: Any) -> tuple[set[str], str]:
    """The tables of orders, and the key of the main one."""
    tables = await sql.fetch("SELECT relname FROM pg_class WHERE relname LIKE '%orders%' AND relkind IN ('r', 'p')")
    key = await sql.fetchval(
        "SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'orders'::regclass AND contype = 'p'"
    )
    return {name for (name,) in tables} - {"erased_orders"}, key


KEY = "orders_pkey PRIMARY KEY (source, order_id)"


async def content(sql: Any) -> list[Any]:
    return list(await sql.fetch("SELECT * FROM orders ORDER BY source, order_id"))


async def test_a_table_is_divided_divided_otherwise_and_joined_again_with_all_that_belongs_to_it(
    dsn: str, sql: Any
) -> None:
    async with role(dsn) as limited:
        name = limited.partition("://")[2].partition(":")[0]
        await migrate(dsn, KNOWN, runtime_role=name)
        await sql.execute(
            f"{FILL}; GRANT SELECT (status) ON orders TO PUBLIC; GRANT SELECT ON order_lines TO pg_monitor;"
            "CREATE INDEX by_country ON orders (country) WHERE country <> ''; COMMENT ON INDEX by_country IS 'ours';"
            "CREATE VIEW theirs WITH (security_barrier=true) AS SELECT order_id FROM orders WHERE status <> '';"
            "ALTER VIEW theirs OWNER TO ingest_owner"
        )
        facts = """
            SELECT c.relname, c.relacl::text, c.reloptions::text, obj_description(c.oid, 'pg_class'), pg_get_viewdef(c.oid),
                   (SELECT string_agg(attname || coalesce(attacl::text, '') || coalesce(col_description(c.oid, attnum), ''), ', ' ORDER BY attnum)
                    FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)
            FROM pg_class AS c WHERE relname IN ('orders', 'order_lines', 'theirs', 'by_country') ORDER BY 1"""
        before, rows = await sql.fetch(facts), await content(sql)

        for partitions in (4, 3, 1):
            assert await set_partitions(dsn, partitions)
            assert not await set_partitions(dsn, partitions), "again"

            parts = {f"orders_{number}" for number in range(partitions)} if partitions > 1 else set()
            assert await form(sql) == ({"orders"} | parts, KEY)
            assert await sql.fetch(facts) == before
            assert await content(sql) == rows
            async with OrderStore.open(limited) as store:
                assert await store.locked(["1"]) == set()
                assert await store.upsert_unlocked([row("0", fetched=partitions)]) == [
                    Effect.INSERTED if partitions == 4 else Effect.UNCHANGED
                ]
            rows = await content(sql)


async def test_orders_that_are_written_and_erased_meanwhile_are_neither_lost_nor_old_nor_back(
    dsn: str, sql: Any
) -> None:
    await sql.execute(FILL)
    done = asyncio.Event()
    newest: dict[str, str] = {}
    erased: set[str] = set()

    async def write(first: int) -> None:
        async with OrderStore.open(dsn) as store:
            turn = 0
            while not done.is_set():
                turn += 1
                ids = [str((first + turn * 977 + number * 31) % ROWS * 2) for number in range(20)]
                rows = [row(order_id, status=f"{first} {turn}", fetched=turn) for order_id in dict.fromkeys(ids)]
                effects = await store.upsert(rows)
                newest.update(
                    (each.order_id, each.status)
                    for each, effect in zip(rows, effects, strict=True)
                    if effect in {Effect.INSERTED, Effect.CHANGED}
                )

    async def erase() -> None:
        number = 0
        async with Pool.open(dsn, size=1) as pool:
            while not done.is_set():
                number += 1
                ids = [str(number * 7), str(ROWS - number)]
                await erase_rows(pool, ids, operation=uuid4(), actor="me", action="orders.erase")
                erased.update(ids)

    async with asyncio.TaskGroup() as writers:
        writers.create_task(write(1))
        writers.create_task(erase())
        await set_partitions(dsn, 4)
        await set_partitions(dsn, 3)
        await set_partitions(dsn, 1)
        done.set()

    stored = dict(await sql.fetch("SELECT order_id, status FROM orders"))
    assert len(erased) > 20
    assert not stored.keys() & erased
    untouched = {str(number) for number in range(1, ROWS + 1)} - newest.keys() - erased
    assert stored == {
        order_id: status for order_id, status in newest.items() if order_id not in erased
    } | dict.fromkeys(untouched, "s")


async def test_an_order_whose_row_is_deleted_while_it_is_copied_does_not_come_back(dsn: str, sql: Any) -> None:
    await sql.execute(FILL)
    async with connected(dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM orders WHERE order_id = '9' FOR UPDATE")
        dividing = asyncio.create_task(set_partitions(dsn, 2))
        waiting = (
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%orders_copy%'"
        )
        await eventually(lambda: sql.fetchval(waiting))
        await other.execute(
            "DELETE FROM orders WHERE order_id = '9'; UPDATE orders SET source = 'de' WHERE order_id = '8'"
        )
        await transaction.commit()
        await dividing

    assert len(await form(sql)) == 2
    assert [
        tuple(each) for each in await sql.fetch("SELECT source, order_id FROM orders WHERE order_id IN ('8', '9')")
    ] == [("de", "8")]


DIVIDING = """
import asyncio, os, signal, sys
from ingest.store.partitioning.partitioning import set_partitions
asyncio.run(set_partitions(sys.argv[1], 4, on_progress=lambda rows: os.kill(os.getpid(), signal.SIGKILL)))
"""


def killed_while_dividing(dsn: str) -> None:
    process = subprocess.run([sys.executable, "-c", DIVIDING, dsn], timeout=60, check=False)
    assert process.returncode == -signal.SIGKILL


async def test_after_a_kill_writers_continue_and_the_next_call_completes_the_division(dsn: str, sql: Any) -> None:
    await sql.execute(FILL)
    await asyncio.to_thread(killed_while_dividing, dsn)
    async with OrderStore.open(dsn) as store:
        await store.upsert([row("1", status="changed", fetched=1), row("0", status="new")])
    await sql.execute("DELETE FROM orders WHERE order_id = '2'")
    expected = await content(sql)

    assert await set_partitions(dsn, 4)

    assert len((await form(sql))[0]) == 5
    assert await content(sql) == expected


@pytest.mark.parametrize("partitions", [1, 2])
async def test_a_division_that_was_interrupted_is_dropped_if_another_number_is_wanted(
    dsn: str, sql: Any, partitions: int
) -> None:
    await sql.execute(FILL)
    expected = await content(sql)
    await asyncio.to_thread(killed_while_dividing, dsn)

    assert await set_partitions(dsn, partitions) is (partitions != 1)

    assert len((await form(sql))[0]) == (1 if partitions == 1 else 3)
    assert await sql.fetchval("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'orders'::regclass") == 0
    assert await content(sql) == expected


async def test_a_copy_from_before_a_migration_is_made_again(dsn: str, sql: Any) -> None:
    await sql.execute(FILL)
    await asyncio.to_thread(killed_while_dividing, dsn)
    await migrate(dsn, [*KNOWN, LATER])
    await sql.execute("UPDATE orders SET later = 'y' WHERE order_id = '1'")
    expected = await content(sql)

    assert await set_partitions(dsn, 4)

    assert await content(sql) == expected


OBSTACLES = {
    "trigger t": "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "foreign key refers of theirs": (
        "CREATE TABLE theirs (s text, i text, CONSTRAINT refers FOREIGN KEY (s, i) REFERENCES orders)"
    ),
    "materialized view theirs": "CREATE MATERIALIZED VIEW theirs AS SELECT * FROM orders",
    "policy p": "CREATE POLICY p ON orders",
    "publication p": "CREATE PUBLICATION p FOR TABLE orders",
    "rule r": "CREATE RULE r AS ON DELETE TO orders DO ALSO NOTHING",
}


@pytest.mark.parametrize("named", OBSTACLES)
async def test_what_the_divided_table_would_lack_is_named_and_nothing_changes(dsn: str, sql: Any, named: str) -> None:
    await sql.execute(OBSTACLES[named])
    before = await form(sql)

    with pytest.raises(PartitioningRefused, match=named):
        await set_partitions(dsn, 4)

    assert await form(sql) == before


async def test_a_table_that_a_long_transaction_writes_is_not_divided(dsn: str, sql: Any) -> None:
    before = await form(sql)
    async with connected(dsn) as writer, writer.transaction():
        await writer.execute(INSERT_ORDER, "a")
        with pytest.raises(PartitioningRefused, match="another transaction uses"):
            await set_partitions(dsn, 4, lock_seconds=0.05)

    assert await form(sql) == before


async def test_a_complete_copy_waits_for_a_long_query_while_workers_store(dsn: str, sql: Any) -> None:
    async with connected(dsn) as reader:
        async with reader.transaction():
            await reader.fetch("SELECT FROM orders")
            dividing = asyncio.create_task(set_partitions(dsn, 4, lock_seconds=0.05))
            waiting = "relation = 'orders'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted"
            await eventually(lambda: sql.fetchval(f"SELECT count(*) = 1 FROM pg_locks WHERE {waiting}"))
            async with OrderStore.open(dsn) as store:
                assert await store.upsert([row("1"), row("2")]) == [Effect.INSERTED] * 2
        assert await dividing

    assert [tuple(each) for each in await sql.fetch("SELECT order_id FROM orders ORDER BY 1")] == [("1",), ("2",)]


async def test_a_table_with_the_key_of_the_release_before_is_contracted_first(cli: Cli, empty_dsn: str) -> None:
    await migrate(empty_dsn, KNOWN[:3])
    env = {"INGEST_POSTGRES_DSN": empty_dsn}

    def run() -> list[subprocess.CompletedProcess[str]]:
        asked = (
            ["--partitions", "4"],
            ["--partitions", "4", "--contract"],
            ["--partitions", "4"],
            ["--partitions", "1"],
        )
        return [cli.run("migrate", *options, env=env) for options in asked]

    refused, divided, again, joined = await asyncio.to_thread(run)

    assert (refused.returncode, "add --contract" in " ".join(refused.stderr.split())) == (1, True)
    assert "orders is now divided into 4 partitions" in divided.stdout
    assert "orders is already divided into 4 partitions" in again.stdout
    assert "orders is now one table" in joined.stdout


async def test_a_later_migration_builds_its_index_in_each_partition_also_after_a_crash(dsn: str, sql: Any) -> None:
    await set_partitions(dsn, 4)
    await sql.execute(FILL)
    indexes = (
        "SELECT relkind::text, count(*) FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
        " WHERE relname LIKE 'orders_by_status%' AND indisvalid GROUP BY 1"
    )
    async with connected(dsn) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetch("SELECT 1")  # building an index waits for this transaction
        migrating = asyncio.create_task(migrate(dsn, [*KNOWN, LATER]))
        end = (
            "SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND query LIKE '%UNIQUE INDEX CONCURRENTLY %'"
        )
        await eventually(lambda: sql.fetchval(end))
        with pytest.raises(Exception, match="terminating"):
            await migrating

    assert await migrate(dsn, [*KNOWN, LATER]) == [LATER]

    assert dict(await sql.fetch(indexes)) == {"I": 1, "i": 4}
    assert await sql.fetchval("SELECT count(*) FROM orders WHERE later = 'x'") == ROWS


async def test_a_page_of_a_divided_table_reads_the_first_rows_of_each_partition_alone(dsn: str, sql: Any) -> None:
    await sql.execute(FILL)
    await set_partitions(dsn, 4)
    in_order = sorted(map(str, range(1, ROWS + 1)))

    async with Pool.open(dsn) as pool, Rows.open(dsn) as rows:
        page = await OrderReader(pool).page(OrderFilter(), OrderPosition("5"), 10)
        ids = [order_id async for found in rows.all_ids() for order_id in found]

    assert [each["order"]["id"] for each in page] == in_order[in_order.index("5") + 1 :][:10]
    assert ids == in_order
    plan = await sql.fetch(
        "EXPLAIN SELECT order_id FROM orders WHERE source = '' AND order_id > '5' ORDER BY order_id LIMIT 10"
    )
    steps = "".join(line for (line,) in plan)
    assert "Merge Append" in steps
    assert "Sort  (" not in steps
