"""Identity in PostgreSQL is (source, order ID), and a database of the release before gets there under load."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from contract.test_order_store import row
from databases import erase
from shipped import as_account
from support import INSERT_ORDER, Cli, connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import ConfigError, StoreUnavailable
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connections.pool import Pool
from ingest.store.orders.documents import Documents, DocumentSelection, Remapped
from ingest.store.orders.order_reading import OrderReader
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import Rows, overview
from ingest.store.orders.source_naming import name_existing
from ingest.store.orders.versions import reset_versions
from ingest.store.schema import SchemaMismatch, check_schema, migrate, migrations

KNOWN = migrations()
BEFORE = KNOWN[:3]
INSERTED, CHANGED = Effect.INSERTED, Effect.CHANGED
# As the release before stores a row.
OLD_UPSERT = INSERT_ORDER + " ON CONFLICT (order_id) DO UPDATE SET attempts = orders.attempts + 1"
# The test of the longest lock. See docs/operate/upgrade.md.
ROWS = int(os.environ.get("MIGRATED_ROWS", "100000"))
# After this time, a worker's statement fails and is repeated.
LOCK_TIMEOUT = 2.0


async def indexes(sql: Any) -> dict[str, str]:
    """The unique indexes of the tables, and whether they can be used."""
    found = await sql.fetch(
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid, indisprimary FROM pg_index"
        " WHERE indrelid IN ('orders'::regclass, 'erased_orders'::regclass)"
    )
    return {
        name: f"{'valid' if valid else 'invalid'} {'primary ' if primary else ''}{definition[definition.index('(') :]}"
        for name, definition, valid, primary in found
    }


EXPANDING = [migration for migration in KNOWN if migration not in BEFORE and not migration.contracts]
EXPANDED = {
    "orders_pkey": "valid primary (order_id)",
    "erased_orders_pkey": "valid primary (order_id)",
    "orders_source_order_id": "valid (source, order_id)",
    "erased_orders_source_order_id": "valid (source, order_id)",
}
CONTRACTED = {
    "orders_pkey": "valid primary (source, order_id)",
    "erased_orders_pkey": "valid primary (source, order_id)",
}


@pytest.fixture
async def sql(empty_dsn: str) -> AsyncIterator[Any]:
    """A connection to the database of `empty_dsn`."""
    async with connected(empty_dsn) as connection:
        yield connection


async def test_a_new_database_has_the_final_key_at_once(empty_dsn: str, sql: Any) -> None:
    await migrate(empty_dsn, KNOWN)

    assert await indexes(sql) == CONTRACTED
    await check_schema(empty_dsn, KNOWN, has_sources=True)


async def test_until_it_is_contracted_both_releases_can_store_and_no_named_source_can(empty_dsn: str, sql: Any) -> None:
    await migrate(empty_dsn, BEFORE)
    await sql.execute(INSERT_ORDER, "before")
    applied = await migrate(empty_dsn, KNOWN)

    assert applied == EXPANDING
    assert await indexes(sql) == EXPANDED
    await check_schema(empty_dsn, KNOWN)
    await check_schema(empty_dsn, BEFORE)
    with pytest.raises(ConfigError, match="ingest migrate --contract"):
        await check_schema(empty_dsn, KNOWN, has_sources=True)
    async with OrderStore.open(empty_dsn) as store:
        await sql.execute(OLD_UPSERT, "by the old one")
        assert await store.upsert([row("by the new one", status="new")]) == [INSERTED]
        for order_id in ("before", "by the new one", "by the old one"):
            await sql.execute(OLD_UPSERT, order_id)
            assert await store.upsert([row(order_id, status="newest", fetched=1)]) == [CHANGED]

    await migrate(empty_dsn, KNOWN, contract=True)

    assert await indexes(sql) == CONTRACTED
    await check_schema(empty_dsn, KNOWN, has_sources=True)
    with pytest.raises(SchemaMismatch, match="supports version 4"):
        await check_schema(empty_dsn, BEFORE)
    rows = await sql.fetch("SELECT source, order_id, status FROM orders ORDER BY order_id")
    assert [tuple(found) for found in rows] == [
        ("", order_id, "newest") for order_id in ("before", "by the new one", "by the old one")
    ]


async def test_a_migration_that_was_cut_off_while_it_built_an_index_is_completed_by_the_next(
    empty_dsn: str, sql: Any
) -> None:
    await migrate(empty_dsn, BEFORE)
    await sql.execute(INSERT_ORDER, "a")
    async with connected(empty_dsn) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetch("SELECT 1")  # building the index waits for this transaction
        migrating = asyncio.create_task(migrate(empty_dsn, KNOWN))
        building = "wait_event_type = 'Lock' AND query LIKE '%CREATE UNIQUE INDEX CONCURRENTLY %'"
        end = f"SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {building}"
        await eventually(lambda: sql.fetchval(end))
        with pytest.raises(Exception, match="terminating"):
            await migrating
    assert (await indexes(sql))["erased_orders_source_order_id"].startswith("invalid")

    await migrate(empty_dsn, KNOWN)

    assert await indexes(sql) == EXPANDED


async def test_two_processes_that_build_the_index_at_once_do_not_wait_for_each_other_for_ever(
    empty_dsn: str, sql: Any
) -> None:
    await migrate(empty_dsn, BEFORE)

    applied = await asyncio.wait_for(asyncio.gather(*(migrate(empty_dsn, KNOWN) for _ in range(3))), 30)

    assert sorted(map(len, applied)) == [0, 0, len(EXPANDING)]
    assert await indexes(sql) == EXPANDED


async def test_a_migration_that_cannot_lock_a_table_tries_again_and_lets_writers_pass_in_between(
    empty_dsn: str, sql: Any
) -> None:
    await migrate(empty_dsn, BEFORE)
    async with connected(empty_dsn) as reader, connected(empty_dsn) as writer:
        async with reader.transaction():
            await reader.fetch("SELECT FROM orders")
            migrating = asyncio.create_task(migrate(empty_dsn, KNOWN))
            waiting = "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted"
            await eventually(lambda: sql.fetchval(waiting))

            await asyncio.wait_for(writer.execute(INSERT_ORDER, "a"), LOCK_TIMEOUT)

        await migrating
    assert await indexes(sql) == EXPANDED


# -- two sources --------------------------------------------------------------------------------------------------


@pytest.fixture
def dsn(either_dsn: str) -> str:
    return either_dsn


@asynccontextmanager
async def two_stores(dsn: str) -> AsyncIterator[tuple[OrderStore, OrderStore]]:
    async with OrderStore.open(dsn, "de") as german, OrderStore.open(dsn, "fr") as french:
        yield german, french


async def statuses(dsn: str) -> dict[tuple[str, str], str]:
    async with connected(dsn) as connection:
        found = await connection.fetch("SELECT source, order_id, status FROM orders")
    return {(source, order_id): status for source, order_id, status in found}


async def test_orders_of_two_sources_with_one_id_do_not_touch_each_other(dsn: str) -> None:
    async with two_stores(dsn) as (german, french):
        assert await german.upsert([row("1", status="de", fetched=5), row("2", status="de")]) == [INSERTED] * 2
        assert await french.upsert([row("1", status="fr", fetched=1)]) == [INSERTED]
        assert await french.upsert([row("1", status="later", fetched=2)]) == [CHANGED]
        assert (await german.some_stored(9), await french.some_stored(9)) == (["1", "2"], ["1"])
        assert await german.would_update([row("2", status="de", fetched=1)])
        assert not await french.would_update([])

    assert await statuses(dsn) == {("de", "1"): "de", ("de", "2"): "de", ("fr", "1"): "later"}
    found = await overview(dsn)
    assert {source: orders.stored for source, orders in found.by_source.items()} == {"de": 2, "fr": 1}
    assert found.stored == 3


async def test_a_row_that_another_transaction_has_locked_is_not_locked_in_the_other_source(dsn: str) -> None:
    async with two_stores(dsn) as (german, french), connected(dsn) as other:
        await german.upsert([row("1")])
        await french.upsert([row("1")])
        async with other.transaction():
            await other.execute("SELECT FROM orders WHERE source = 'de' FOR UPDATE")

            assert (await german.locked(["1"]), await french.locked(["1"])) == ({"1"}, set())
            assert await french.upsert_unlocked([row("1", status="x", fetched=1)]) == [CHANGED]


async def test_an_order_is_erased_in_its_source_alone(dsn: str) -> None:
    async with two_stores(dsn) as (german, french):
        await german.upsert([row("1")])
        await french.upsert([row("1")])

        assert await erase(dsn, "1", source="de") == 1

        assert await german.upsert([row("1", fetched=9)]) == [Effect.ERASED]
        assert await french.upsert([row("1", status="new", fetched=9)]) == [CHANGED]
    async with connected(dsn) as connection, Rows.open(dsn, "de") as rows, Rows.open(dsn, "fr") as french_rows:
        assert await connection.fetchval("SELECT source FROM audit_log") == "de"
        assert (await rows.erased(["1"]), await french_rows.erased(["1"])) == ({"1"}, set())
        assert (await rows.present(["1"]), await french_rows.present(["1"])) == (set(), {"1"})
        assert [page async for page in french_rows.all_ids()] == [["1"]]
        assert [page async for page in rows.all_ids()] == []


async def test_an_order_is_found_and_listed_in_its_source_alone(dsn: str) -> None:
    async with two_stores(dsn) as (german, french), Pool.open(dsn) as pool:
        await german.upsert([row("1", status="de"), row("2", status="de")])
        await french.upsert([row("1", status="fr"), row("3", status="fr")])

        found = await OrderReader(pool, "fr").find(["1", "2"])
        page = await OrderReader(pool, "fr").page(OrderFilter(), OrderPosition(), 10)
        reset = await reset_versions(pool, ["1", "2"], "de")

    assert found["1"].row is not None
    assert found["1"].row["order"]["status"] == "fr"
    assert found["2"].row is None
    assert [listed["order"]["id"] for listed in page] == ["1", "3"]
    assert reset == 2


async def test_stored_documents_are_read_and_replaced_in_their_source_alone(dsn: str) -> None:
    async with two_stores(dsn) as (german, french), connected(dsn) as connection:
        await german.upsert([row("1", status="de")])
        await french.upsert([row("1", status="fr"), row("2", status="fr")])
        await connection.execute("UPDATE orders SET document = '{}'")

        async with Documents.open(dsn, DocumentSelection(), "de") as documents:
            count, page = await documents.count(OrderPosition()), await documents.page(OrderPosition())
            present = await documents.present(["1", "2"])
            compared = await documents.compare([row("1", status="new"), row("2", status="new")])
            replaced = await documents.replace([row("1", status="new"), row("2", status="new")])

    assert (count, [document.order_id for document in page], present) == (1, ["1"], {"1"})
    assert compared == replaced == {"1": Remapped.CHANGED}
    assert await statuses(dsn) == {("de", "1"): "new", ("fr", "1"): "fr", ("fr", "2"): "fr"}


# -- naming the rows that exist -----------------------------------------------------------------------------------


async def test_existing_rows_get_a_name_and_of_an_order_in_both_sources_the_newer_stays(dsn: str) -> None:
    async with OrderStore.open(dsn) as unnamed, OrderStore.open(dsn, "de") as german, connected(dsn) as connection:
        await unnamed.upsert([row(str(number), status="old") for number in range(5000)])
        await unnamed.upsert([row("both", status="old"), row("newer", status="newer", fetched=9)])
        await german.upsert([row("both", status="new", fetched=1), row("newer", status="older", fetched=1)])
        await connection.execute("INSERT INTO erased_orders (order_id) VALUES ('gone'), ('twice')")
        await connection.execute("INSERT INTO erased_orders (order_id, source) VALUES ('twice', 'de')")
        progress: list[int] = []

        moved = await name_existing(as_account(dsn, "ingest_owner"), "de", on_progress=progress.append)

        again = await name_existing(as_account(dsn, "ingest_owner"), "de")
        erased = await connection.fetch("SELECT source, order_id FROM erased_orders ORDER BY order_id")
    found = await statuses(dsn)
    assert (moved, again, progress[-1], len(progress)) == (5002, 0, 5002, 3)
    assert len(found) == 5002
    assert {source for source, _ in found} == {"de"}
    assert (found["de", "both"], found["de", "newer"]) == ("new", "newer")
    assert [tuple(each) for each in erased] == [("de", "gone"), ("de", "twice")]


async def upsert_as_a_worker(store: OrderStore, rows: list[OrderRow]) -> None:
    """Repeat a batch that PostgreSQL has aborted because of a deadlock, which a renaming in a divided table may cause."""
    while True:
        with suppress(StoreUnavailable):
            await store.upsert(rows)
            return


async def test_orders_that_are_stored_under_their_new_name_meanwhile_are_neither_lost_nor_set_back(dsn: str) -> None:
    ids = [str(number) for number in range(6000)]
    async with OrderStore.open(dsn) as unnamed, OrderStore.open(dsn, "de") as german:
        await unnamed.upsert([row(order_id, status="old") for order_id in ids])
        naming = asyncio.create_task(name_existing(as_account(dsn, "ingest_owner"), "de"))
        for start in range(0, len(ids), 60):
            await upsert_as_a_worker(
                german, [row(order_id, status="new", fetched=1) for order_id in ids[start : start + 60]]
            )
        await naming

    assert await statuses(dsn) == {("de", order_id): "new" for order_id in ids}


def test_the_command_contracts_and_names_what_is_there(cli: Cli, empty_dsn: str) -> None:
    asyncio.run(migrate(empty_dsn, BEFORE))

    async def insert() -> None:
        async with connected(empty_dsn) as connection:
            await connection.execute(INSERT_ORDER, "a")

    asyncio.run(insert())
    env = {"INGEST_POSTGRES_DSN": empty_dsn}
    expanded = cli.run("migrate", env=env)
    refused = cli.run("migrate", "--source-of-existing", "shop-de", env=env)
    named = cli.run("migrate", "--contract", "--source-of-existing", "shop-de", env=env)

    assert "ingest migrate --contract" in expanded.stdout
    assert (refused.returncode, "ingest migrate --contract" in " ".join(refused.stderr.split())) == (2, True)
    assert "1 stored orders belong to shop-de now" in named.stdout, named.stderr
    assert asyncio.run(statuses(empty_dsn)) == {("shop-de", "a"): "s"}


# -- a large table under load -------------------------------------------------------------------------------------


@contextmanager
def measured(waits: list[float]) -> Iterator[None]:
    started = time.monotonic()
    yield
    waits.append(time.monotonic() - started)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_writers_do_not_wait_long_while_a_large_table_gets_its_new_key(empty_dsn: str, sql: Any) -> None:
    await migrate(empty_dsn, BEFORE)
    await sql.execute(INSERT_ORDER.replace("SELECT $1", "SELECT n::text") + f", generate_series(1, {ROWS}) AS n")
    await sql.execute("ANALYZE orders")
    waits: list[float] = []
    stop = asyncio.Event()

    async def write_as_before(number: int) -> None:
        async with connected(empty_dsn) as writer:
            for turn in range(10**9):
                if stop.is_set():
                    return
                with measured(waits):
                    await writer.execute(OLD_UPSERT, str((turn * 7919 + number) % ROWS * 2))
                await asyncio.sleep(0.002)

    async def write_as_now(source: str) -> None:
        async with OrderStore.open(empty_dsn, source) as store:
            for turn in range(10**9):
                if stop.is_set():
                    return
                rows = [row(str((turn * 7919 + n * 31) % ROWS * 2), fetched=turn) for n in range(20)]
                with measured(waits):
                    await store.upsert(rows)
                await asyncio.sleep(0.002)

    async def during(writers: Any, *, contract: bool) -> tuple[float, float]:
        """The seconds of a migration, and the longest wait of a writer."""
        stop.clear()
        waits.clear()
        running = [asyncio.create_task(writer) for writer in writers]
        await asyncio.sleep(0.5)
        started = time.monotonic()
        await migrate(empty_dsn, KNOWN, contract=contract)
        took = time.monotonic() - started
        await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*running)
        return took, max(waits)

    expanding, longest = await during([write_as_before(1), write_as_before(2)], contract=False)
    contracting, longest_then = await during([write_as_now(""), write_as_now("")], contract=True)
    started = time.monotonic()
    stop.clear()
    waits.clear()
    writer = asyncio.create_task(write_as_now("other"))
    await name_existing(empty_dsn, "shop")
    stop.set()
    await writer
    print(  # noqa: T201
        f"{ROWS:,} rows: expanding {expanding:.1f} s, longest wait of a writer {longest * 1000:.0f} ms;"
        f" contracting {contracting:.2f} s, {longest_then * 1000:.0f} ms;"
        f" naming {time.monotonic() - started:.1f} s, {max(waits) * 1000:.0f} ms"
    )

    assert await indexes(sql) == CONTRACTED
    assert max(longest, longest_then, *waits) < LOCK_TIMEOUT
