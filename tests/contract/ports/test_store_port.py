"""The guarantees of `ingest.flow.ports.Store`, of each implementation."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Protocol

import asyncpg
import pytest
from fakes.store import MemoryStore
from support import INSERT_ORDER, connected

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused, StoreLocked, StoreTooSlow, StoreUnavailable, TableLocked
from ingest.domain.orders.order import Order
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.ports import Store
from ingest.store.orders.order_store import OrderStore

INSERTED, CHANGED, UNCHANGED, ERASED = Effect.INSERTED, Effect.CHANGED, Effect.UNCHANGED, Effect.ERASED
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SUPPRESSED = Effect.SUPPRESSED
REFUSED = "refused"  # a status
KEPT_OUT = "kept out"  # another, of rows that a trigger suppresses


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def row(order_id: str = "a", status: str = "placed", *, fetched: float = 0, updated: float | None = None) -> OrderRow:
    """Times are seconds after `T0`."""
    order = Order(order_id, status, "GBP", T0, (), None if updated is None else at(updated))
    return OrderRow.of(order, at(fetched), attempts=1, enqueued_at=T0.timestamp())


class Table(Protocol):
    """An orders table, as tests see it."""

    @property
    def store(self) -> Store: ...
    async def statuses(self) -> dict[str, str]: ...
    async def erase(self, order_id: str) -> None: ...
    async def lock(self) -> None:
        """Let no row be stored in time from now on."""

    async def lock_row(self, order_id: str) -> None:
        """Lock a stored row, like a transaction of another session."""

    async def insert_uncommitted(self, order_id: str) -> None:
        """Insert a row, like an open transaction of another session."""


@dataclass
class MemoryTable:
    store: MemoryStore

    async def statuses(self) -> dict[str, str]:
        return {order_id: row.status for order_id, row in self.store.rows.items()}

    async def erase(self, order_id: str) -> None:
        self.store.rows.pop(order_id, None)
        self.store.erased.add(order_id)

    async def lock(self) -> None:
        self.store.most = 0

    async def lock_row(self, order_id: str) -> None:
        self.store.locked_ids.add(order_id)

    async def insert_uncommitted(self, order_id: str) -> None:
        self.store.inserting_ids.add(order_id)


@dataclass
class PostgresTable:
    store: OrderStore
    sql: asyncpg.Connection

    async def statuses(self) -> dict[str, str]:
        return dict(await self.sql.fetch("SELECT order_id, status FROM orders WHERE source = ''"))

    async def erase(self, order_id: str) -> None:
        await self.sql.execute("DELETE FROM orders WHERE source = '' AND order_id = $1", order_id)
        await self.sql.execute("INSERT INTO erased_orders (order_id) VALUES ($1)", order_id)

    async def lock(self) -> None:
        await self.sql.execute("BEGIN; LOCK TABLE orders IN SHARE MODE")

    async def lock_row(self, order_id: str) -> None:
        await self.sql.execute("BEGIN")
        await self.sql.execute("SELECT FROM orders WHERE source = '' AND order_id = $1 FOR UPDATE", order_id)

    async def insert_uncommitted(self, order_id: str) -> None:
        await self.sql.execute("BEGIN")
        await self.sql.execute(INSERT_ORDER, order_id)


class ImpatientStore(OrderStore):
    timeout: ClassVar[float] = 1.0


# All orders of these tests exist in other sources as well. In two they are stored and newer, of which one is locked, and in one erased.
_IDS = ["a", "b", "c", "changed", "erased", "good", "new", "newer", "same", "twice"]
_LOCKED, _FREE, _ERASED = "other-locked", "other-free", "other-erased"

_OTHERS = "SELECT * FROM orders WHERE source <> '' ORDER BY source, order_id"


@asynccontextmanager
async def other_sources(dsn: str) -> AsyncIterator[None]:
    """The same orders in other sources, which stay as they are while the block runs."""
    async with OrderStore.open(dsn, _LOCKED) as locked, OrderStore.open(dsn, _FREE) as free, connected(dsn) as sql:
        for store in (locked, free):
            await store.upsert([row(name, "others", fetched=10**6, updated=10**6) for name in _IDS])
        await sql.execute("INSERT INTO erased_orders (source, order_id) SELECT $1, unnest($2::text[])", _ERASED, _IDS)
        async with sql.transaction():
            before = await sql.fetch(_OTHERS)
            await sql.execute("SELECT FROM orders WHERE source = $1 FOR UPDATE", _LOCKED)

            yield

            assert await sql.fetch(_OTHERS) == before


@asynccontextmanager
async def postgres_table(dsn: str) -> AsyncIterator[PostgresTable]:
    async with ImpatientStore.open(dsn) as store, connected(dsn) as sql:
        await sql.execute(f"ALTER TABLE orders ADD CONSTRAINT a_constraint CHECK (status <> '{REFUSED}')")
        await sql.execute(
            "CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
            "CREATE TRIGGER suppresses BEFORE INSERT ON orders FOR EACH ROW"
            f" WHEN (new.status = '{KEPT_OUT}') EXECUTE FUNCTION suppress()"
        )
        async with other_sources(dsn):
            yield PostgresTable(store, sql)


@pytest.fixture(params=["memory", "postgres"])
def table_dsn(request: pytest.FixtureRequest) -> str | None:
    """The database, or None for the fake."""
    return request.getfixturevalue("dsn") if request.param == "postgres" else None


@pytest.fixture
async def table(table_dsn: str | None) -> AsyncIterator[Table]:
    if table_dsn is not None:
        async with postgres_table(table_dsn) as table:
            yield table
    else:
        store = MemoryStore()
        store.refuses = lambda row: row.status == REFUSED
        store.suppresses = lambda row: row.status == KEPT_OUT
        yield MemoryTable(store)


async def stored(table: Table, *batches: Sequence[OrderRow]) -> list[list[Effect]]:
    return [await table.store.upsert(batch) for batch in batches]


async def test_the_effect_of_each_row_is_told_in_their_order(table: Table) -> None:
    await stored(table, [row("same"), row("changed")])
    await table.erase("erased")

    effects = await table.store.upsert(
        [row("new"), row("erased"), row("changed", "paid", fetched=1), row("same", fetched=1)]
    )

    assert effects == [INSERTED, ERASED, CHANGED, UNCHANGED]
    assert await table.statuses() == {"new": "placed", "changed": "paid", "same": "placed"}


async def test_a_batch_that_is_stored_again_changes_nothing(table: Table) -> None:
    batch = [row("a", fetched=1), row("b", fetched=1, updated=1)]

    assert await stored(table, batch, batch) == [[INSERTED, INSERTED], [UNCHANGED, UNCHANGED]]


async def test_an_older_version_never_replaces_a_newer_one(table: Table) -> None:
    newer, older = row(status="newer", updated=10, fetched=0), row(status="older", updated=5, fetched=99)

    assert await stored(table, [newer], [older]) == [[INSERTED], [UNCHANGED]]
    assert await table.statuses() == {"a": "newer"}


async def test_of_equal_versions_the_one_fetched_later_is_stored(table: Table) -> None:
    first, second = row(status="first", updated=10, fetched=1), row(status="second", updated=10, fetched=2)

    assert await stored(table, [first], [second], [first]) == [[INSERTED], [CHANGED], [UNCHANGED]]
    assert await table.statuses() == {"a": "second"}


async def test_unchanged_content_moves_the_version_on(table: Table) -> None:
    await stored(table, [row(fetched=10)], [row(fetched=20)])

    assert await table.store.upsert([row(status="between", fetched=15)]) == [UNCHANGED]
    assert await table.statuses() == {"a": "placed"}


async def test_of_several_rows_of_one_order_the_newest_is_stored(table: Table) -> None:
    batch = [row(status="old", fetched=1), row(status="new", fetched=3), row(status="middle", fetched=2)]

    assert await table.store.upsert(batch) == [UNCHANGED, INSERTED, UNCHANGED]
    assert await table.statuses() == {"a": "new"}


async def test_an_erased_order_does_not_come_back(table: Table) -> None:
    await stored(table, [row()])
    await table.erase("a")

    assert await table.store.upsert([row(fetched=99)]) == [ERASED]
    assert await table.statuses() == {}


async def test_if_a_row_is_refused_none_is_stored(table: Table) -> None:
    with pytest.raises(RowsRefused):
        await table.store.upsert([row("a"), row("b", REFUSED), row("c")])

    assert await table.statuses() == {}
    assert await table.store.upsert([row("a"), row("c")]) == [INSERTED, INSERTED]


async def test_a_row_that_is_kept_out_is_told_and_the_others_are_stored(table: Table) -> None:
    await stored(table, [row("changed"), row("newer", fetched=2), row("same"), row("erased")])
    await table.erase("erased")

    effects = await table.store.upsert(
        [
            row("new", KEPT_OUT),
            row("changed", KEPT_OUT, fetched=1),
            row("newer", KEPT_OUT, fetched=1),
            row("erased", KEPT_OUT),
            row("twice", fetched=1),
            row("twice", KEPT_OUT, fetched=2),
            row("good"),
        ]
    )

    assert effects == [SUPPRESSED, SUPPRESSED, UNCHANGED, ERASED, SUPPRESSED, SUPPRESSED, INSERTED]
    assert await table.statuses() == dict.fromkeys(("changed", "newer", "same", "good"), "placed")


async def test_whether_stored_rows_would_be_updated_is_told_and_changes_nothing(table: Table) -> None:
    await stored(table, [row("a", fetched=1), row("b", updated=5)])

    assert await table.store.would_update([row("a", fetched=1)])
    assert await table.store.would_update([row("b", updated=5)])
    assert not await table.store.would_update([row("b", updated=4)])
    assert not await table.store.would_update([row("b", KEPT_OUT, updated=5)])
    with pytest.raises(RowsRefused):
        await table.store.would_update([row("b", REFUSED, updated=5)])
    assert await table.statuses() == {"a": "placed", "b": "placed"}
    assert await table.store.upsert([row("a", "paid", fetched=1)]) == [UNCHANGED]


async def test_an_empty_batch_stores_nothing(table: Table) -> None:
    assert await table.store.upsert([]) == []


async def test_what_is_not_stored_in_time_is_too_slow(table: Table) -> None:
    await table.lock()

    with pytest.raises((StoreTooSlow, TableLocked)):
        await table.store.upsert([row()])


async def test_locked_rows_are_told_from_those_that_can_be_stored(table: Table) -> None:
    await stored(table, [row("a"), row("b")])
    await table.lock_row("b")

    with pytest.raises(StoreTooSlow):
        await table.store.upsert([row("a", fetched=1), row("b", fetched=1), row("new")])

    assert await table.store.locked(["a", "b", "new"]) == {"b"}
    assert await table.store.upsert([row("a", "paid", fetched=1), row("new")]) == [CHANGED, INSERTED]


async def test_what_others_have_inserted_and_not_committed_is_not_waited_for(table: Table) -> None:
    await table.insert_uncommitted("b")

    for upsert in (table.store.upsert, table.store.upsert_unlocked):
        with pytest.raises(StoreLocked):
            await upsert([row("a"), row("b")])

    assert await table.store.upsert_unlocked([row("a")]) == [INSERTED]
    assert await table.store.upsert([row("c")]) == [INSERTED]


async def test_a_locked_table_is_no_locked_row(table: Table) -> None:
    await table.lock()

    with pytest.raises(StoreUnavailable) as raised:
        await table.store.upsert_unlocked([row("a")])

    assert not isinstance(raised.value, StoreLocked)


async def test_where_the_whole_table_is_locked_no_row_is_said_to_be(table: Table) -> None:
    await stored(table, [row("a")])
    await table.lock()

    with pytest.raises(StoreUnavailable):
        await table.store.locked(["a", "unknown"])


async def test_an_order_is_stored_since_a_time_if_its_document_was_requested_later(table: Table) -> None:
    await table.store.upsert([row("a", fetched=10), row("b", fetched=10)])

    found = await table.store.stored_since({"a": at(9), "b": at(11), "c": at(0)})

    assert set(found) == {"a"}
