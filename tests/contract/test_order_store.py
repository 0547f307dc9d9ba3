"""The order store on a real server. Every order is stored once, and an older version never replaces a newer version."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy import Proxy
from shipped import as_admin
from support import connected, eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import (
    RowsRefused,
    StoreInterrupted,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    UserError,
)
from ingest.domain.orders.order import Order, OrderLine, decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import EmbeddedServers, PostgresServer, embedded_servers
from ingest.lab.upstream.samples import sample_orders
from ingest.store.connections.connection import Reconnecting, connect, is_behind_pooler
from ingest.store.connections.translation import StoreDenied, StoreRefused, translated
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import overview
from ingest.store.schema import migrate, migrations

INSERTED, CHANGED, UNCHANGED, ERASED = Effect.INSERTED, Effect.CHANGED, Effect.UNCHANGED, Effect.ERASED
SUPPRESSED = Effect.SUPPRESSED
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def order_of(order_id: str = "a", *, status: str = "placed", updated: float | None = None, lines: int = 1) -> Order:
    """An order. Times are seconds after `T0`."""
    return Order(
        id=order_id,
        status=status,
        currency="GBP",
        placed_at=T0,
        lines=(OrderLine("85123A", 6, Decimal("2.55"), "HOLDER"),) * lines,
        updated_at=None if updated is None else at(updated),
        customer_id="17850",
        country=None,
    )


def row(
    order_id: str = "a", *, status: str = "placed", updated: float | None = None, fetched: float = 0, lines: int = 1
) -> OrderRow:
    """The row of an order. Times are seconds after `T0`."""
    order = order_of(order_id, status=status, updated=updated, lines=lines)
    return OrderRow.of(order, at(fetched), attempts=1, enqueued_at=T0.timestamp())


@pytest.fixture
def dsn(either_dsn: str) -> str:
    return either_dsn


@pytest.fixture(params=["direct", "pooled"])
async def store(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[OrderStore]:
    """The store in both its ways of talking: the second is for what stands behind a transaction pooler."""
    if request.param == "direct":
        async with OrderStore.open(dsn) as store:
            yield store
    else:
        connection = Reconnecting(dsn, pooled=True)
        yield OrderStore(connection)
        connection.close()


async def test_behind_a_pooler_nothing_is_prepared_that_another_server_process_would_not_know(dsn: str) -> None:
    connection = Reconnecting(dsn, pooled=True)
    store = OrderStore(connection)
    await store.upsert([row()])
    await store.upsert([row()])

    prepared = await connection.fetch("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")

    connection.close()
    assert prepared[0][0] == 0


async def test_a_direct_connection_is_not_taken_for_a_pooler(dsn: str) -> None:
    assert not await is_behind_pooler(dsn)


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[Any]:
    async with connected(dsn) as connection:
        yield connection


async def whole_row(sql: Any, order_id: str = "a") -> asyncpg.Record:
    """The row with PostgreSQL's system columns, which show the transaction that wrote it and its position."""
    return await sql.fetchrow("SELECT xmin, ctid, * FROM orders WHERE order_id = $1", order_id)


# -- effects ------------------------------------------------------------------------------------------------------


async def test_every_column_is_filled(store: OrderStore, sql: Any) -> None:
    before = await sql.fetchval("SELECT clock_timestamp()")
    order = msgspec.structs.replace(order_of(updated=5, lines=2), attributes={"gift": True})
    given_row = OrderRow.of(
        order, at(7), attempts=3, enqueued_at=(T0 - timedelta(1)).timestamp(), document='{"id":"a"}'
    )

    await store.upsert([given_row])

    stored = dict(await sql.fetchrow("SELECT * FROM orders"))
    ingested_at, lines = stored.pop("ingested_at"), stored.pop("lines")
    assert stored == {
        "order_id": "a", "status": "placed", "currency": "GBP", "customer_id": "17850", "country": None,
        "placed_at": T0, "updated_at": at(5), "line_count": 2, "total": Decimal("30.60"), "version": at(5),
        "fetched_at": at(7), "attempts": 3, "enqueued_at": T0 - timedelta(1),
        "attributes": '{"gift": true}', "document": '{"id": "a"}', "source": "",
    }  # fmt: skip
    assert before < ingested_at < await sql.fetchval("SELECT clock_timestamp()")
    assert lines.count('"unit_price": "2.55"') == 2


async def test_an_order_without_updated_at_has_the_time_of_its_fetch_as_version(store: OrderStore, sql: Any) -> None:
    await store.upsert([row(fetched=9)])

    assert await sql.fetchval("SELECT version FROM orders") == at(9)


# -- versions -----------------------------------------------------------------------------------------------------

OLD, NEW = row(status="old", updated=1, fetched=20), row(status="new", updated=2, fetched=10)


@pytest.mark.parametrize("updated", [None, 5])
async def test_the_same_fetch_stored_again_leaves_the_row_untouched(
    store: OrderStore, sql: Any, updated: float | None
) -> None:
    await store.upsert([row(updated=updated, fetched=10)])
    before = await whole_row(sql)

    effects = [
        await store.upsert([row(updated=updated, fetched=10)]),
        await store.upsert([row(updated=updated, fetched=9)]),
        await store.upsert([OrderRow.of(order_of(updated=updated), at(10), attempts=9, enqueued_at=1.0)]),
    ]

    assert effects == [[UNCHANGED]] * 3
    assert await whole_row(sql) == before


@pytest.mark.parametrize("updated", [None, 5])
async def test_a_later_fetch_of_the_same_content_advances_what_guards_the_row_and_counts_as_no_change(
    store: OrderStore, sql: Any, updated: float | None
) -> None:
    await store.upsert([row(updated=updated, fetched=10, lines=2_000)])
    before = dict(await sql.fetchrow("SELECT * FROM orders"))
    pages = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'orders'"
    aside = await sql.fetchval(pages)

    later = OrderRow.of(order_of(updated=updated, lines=2_000), at(99), attempts=9, enqueued_at=1.0)
    effects = await store.upsert([later])

    assert effects == [UNCHANGED]
    guard = {"fetched_at": at(99), "version": at(99) if updated is None else at(updated)}
    assert dict(await sql.fetchrow("SELECT * FROM orders")) == before | guard
    assert await sql.fetchval(pages) == aside, "the lines are not written again"


async def test_prices_that_are_written_differently_are_a_change_of_lines_alone(store: OrderStore, sql: Any) -> None:
    order = order_of()
    rewritten = Order(**{name: getattr(order, name) for name in order.__struct_fields__} | {"lines": (OrderLine("85123A", 6, Decimal("2.550"), "HOLDER"),)})  # fmt: skip
    await store.upsert([row()])

    await store.upsert([OrderRow.of(rewritten, at(1), 1, 1.0)])

    assert '"2.550"' in (await whole_row(sql))["lines"]


@settings(max_examples=40)
@given(data=st.data())
async def test_any_sequence_of_versions_ends_with_the_newest(store: OrderStore, sql: Any, data: st.DataObject) -> None:
    versions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=8)
    batches = data.draw(st.lists(versions, min_size=1, max_size=5))
    dated = data.draw(st.booleans())
    order_id = f"order-{secrets.token_hex(8)}"
    # The content of an order at a version and a fetch. There are few contents, so that they repeat, and always the same for the same pair.
    content: dict[tuple[int, int], str] = {}

    newest = (-1, -1)
    for batch in batches:
        rows = []
        for version, fetched in batch:
            moment = (version if dated else fetched, fetched)
            if moment not in content:
                content[moment] = data.draw(st.sampled_from("ABC"))
            newest = max(newest, moment)
            rows.append(row(order_id, status=content[moment], updated=version if dated else None, fetched=fetched))
        await store.upsert(rows)

        # After each batch, not only at the end.
        stored = await whole_row(sql, order_id)
        assert (stored["status"], stored["version"], stored["fetched_at"]) == (
            content[newest], at(newest[0]), at(newest[1]),
        )  # fmt: skip


@settings(max_examples=15)
@given(data=st.data())
async def test_the_newest_wins_in_whatever_order_writers_at_once_arrive(
    dsn: str, sql: Any, data: st.DataObject
) -> None:
    order_id = f"order-{secrets.token_hex(8)}"
    times = data.draw(st.lists(st.integers(0, 20), min_size=2, max_size=8, unique=True))
    rows = [row(order_id, status=data.draw(st.sampled_from("AB")), fetched=fetched) for fetched in times]

    async with OrderStore.open(dsn) as one, OrderStore.open(dsn) as other:
        effects = await asyncio.gather(*((one, other)[number % 2].upsert([r]) for number, r in enumerate(rows)))

    newest = max(rows, key=lambda one: one.fetched_at)
    stored = await whole_row(sql, order_id)
    assert (stored["status"], stored["fetched_at"]) == (newest.status, newest.fetched_at)
    # A writer that starts in the same microsecond as the one that inserts reports an insertion as well.
    assert INSERTED in [effect for (effect,) in effects]


# -- what triggers suppress ---------------------------------------------------------------------------------------


@pytest.fixture
async def suppress(sql: Any) -> Callable[[str, str], Awaitable[None]]:
    """Makes a trigger that suppresses rows: the event, and when."""
    await sql.execute("CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")

    async def suppress(event: str, condition: str = "true") -> None:
        await sql.execute(
            f"CREATE TRIGGER suppresses BEFORE {event} ON orders FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION suppress()"
        )

    return suppress


Suppress = Callable[[str, str], Awaitable[None]]


@pytest.mark.parametrize("way", ["upsert", "upsert_unlocked"])
async def test_a_row_that_a_trigger_keeps_out_is_told_from_one_that_is_stored_already(
    store: OrderStore, sql: Any, suppress: Suppress, way: str
) -> None:
    await sql.execute("INSERT INTO erased_orders (order_id) VALUES ('erased')")
    await store.upsert([row("same"), row("newer", fetched=9), row("confirmed")])
    await suppress("INSERT", "new.order_id IN ('bad', 'same', 'newer')")

    effects = await getattr(store, way)(
        [row("bad"), row("new"), row("same"), row("newer", fetched=1), row("erased"), row("confirmed", fetched=1)]
    )

    assert effects == [SUPPRESSED, INSERTED, UNCHANGED, UNCHANGED, ERASED, UNCHANGED]
    assert [key for (key,) in await sql.fetch("SELECT order_id FROM orders ORDER BY 1")] == [
        "confirmed", "new", "newer", "same",
    ]  # fmt: skip


async def test_a_change_that_a_trigger_keeps_out_is_told_and_a_mere_confirmation_is_none(
    store: OrderStore, sql: Any, suppress: Suppress
) -> None:
    await store.upsert([row("a"), row("b"), row("c")])
    await suppress("UPDATE", "old.order_id <> 'c'")

    effects = await store.upsert(
        [row("a", status="paid", fetched=1), row("b", fetched=1), row("c", status="paid", fetched=1)]
    )

    assert effects == [SUPPRESSED, UNCHANGED, CHANGED]
    assert dict(await sql.fetch("SELECT order_id, status FROM orders")) == {"a": "placed", "b": "placed", "c": "paid"}


class Interfered(Reconnecting):
    """A connection after whose statement of this number something happens."""

    def __init__(self, dsn: str, after: int, happens: Callable[[], Awaitable[None]], **options: float) -> None:
        super().__init__(dsn, pooled=False, **options)
        self._left = after
        self._happens = happens

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        records = await super().fetch(statement, *arguments)
        self._left -= 1
        if self._left == 0:
            await self._happens()
        return records


async def test_what_cannot_be_looked_up_after_the_commit_is_no_lock_of_a_row(
    dsn: str, sql: Any, suppress: Suppress
) -> None:
    async def lock() -> None:
        await sql.execute("BEGIN; LOCK TABLE orders")

    await suppress("INSERT", "new.order_id = 'bad'")

    with closing(Interfered(dsn, 1, lock, timeout=5.0, lock_timeout=0.2)) as connection:
        with pytest.raises(StoreUnavailable) as raised:
            await OrderStore(connection).upsert([row("bad"), row("good")])
        await sql.execute("COMMIT")

        assert not isinstance(raised.value, StoreLocked)
        assert await OrderStore(connection).upsert([row("bad"), row("good")]) == [SUPPRESSED, UNCHANGED]


async def test_an_order_that_somebody_stores_between_the_statement_and_the_look_is_unchanged(
    dsn: str, suppress: Suppress, sql: Any
) -> None:
    async def store_and_erase() -> None:
        await sql.execute("DROP TRIGGER suppresses ON orders")
        async with OrderStore.open(dsn) as other:
            await other.upsert([row("late", fetched=1)])
        await sql.execute("INSERT INTO erased_orders (order_id) VALUES ('gone')")

    await suppress("INSERT", "new.attempts = 1")

    with closing(Interfered(dsn, 1, store_and_erase)) as connection:
        assert await OrderStore(connection).upsert([row("late"), row("gone")]) == [UNCHANGED, UNCHANGED]


async def test_an_order_that_somebody_deletes_between_the_statement_and_the_look_is_stored_by_the_next(
    dsn: str, sql: Any
) -> None:
    async def delete() -> None:
        await sql.execute("DELETE FROM orders")

    with closing(Interfered(dsn, 2, delete)) as connection:
        effects = [await OrderStore(connection).upsert([row(fetched=fetched)]) for fetched in (2, 1, 1)]

    assert effects == [[INSERTED], [SUPPRESSED], [INSERTED]]


# -- size and company ---------------------------------------------------------------------------------------------


async def test_five_thousand_rows_are_one_batch(store: OrderStore, sql: Any) -> None:
    rows = [row(f"order-{number}") for number in range(5_000)]

    first, second = await store.upsert(rows), await store.upsert(rows)

    assert (set(first), set(second)) == ({INSERTED}, {UNCHANGED})
    assert await sql.fetchval("SELECT count(*) FROM orders") == 5_000
    assert await sql.fetchval("SELECT count(DISTINCT xmin::text) FROM orders") == 1


async def test_overlapping_batches_of_several_stores_do_not_deadlock_and_end_right(dsn: str, sql: Any) -> None:
    chance = random.Random(1)
    await sql.execute("SELECT pg_stat_reset()")

    async def write(writer: int) -> None:
        async with OrderStore.open(dsn) as store:
            for turn in range(12):
                version = turn * 4 + writer
                batch = [row(f"order-{number}", status=f"v{version}", updated=version) for number in range(200)]
                chance.shuffle(batch)
                await store.upsert(batch)

    await asyncio.gather(*(write(writer) for writer in range(4)))

    assert await sql.fetch("SELECT DISTINCT status FROM orders") == [("v47",)]
    assert await sql.fetchval("SELECT count(*) FROM orders") == 200
    assert await sql.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_rows_are_locked_in_the_order_of_their_keys(dsn: str, store: OrderStore, sql: Any) -> None:
    async def is_waiting() -> bool:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(await other.fetchval(waiting))

    await store.upsert([row("a"), row("b"), row("c")])

    async with connected(dsn) as other, sql.transaction():
        await sql.execute("SELECT 1 FROM orders WHERE order_id = 'a' FOR UPDATE")
        upserting = asyncio.create_task(store.upsert([row(key, status="paid", fetched=1) for key in ("c", "b", "a")]))
        await eventually(is_waiting)
        free = await other.fetch("SELECT order_id FROM orders ORDER BY order_id FOR UPDATE SKIP LOCKED")

    # While it waits for the first key it holds no other key, so it cannot block another writer.
    assert [record[0] for record in free] == ["b", "c"]
    assert await upserting == [CHANGED] * 3


async def test_every_bundled_order_comes_back_exactly_from_table_and_view(store: OrderStore, sql: Any) -> None:
    orders = {order_id: decode_order(document, order_id) for order_id, document in sample_orders().items()}
    rows = [OrderRow.of(order, T0, 1, T0.timestamp()) for order in orders.values()]

    for start in range(0, len(rows), 2_500):
        assert set(await store.upsert(rows[start : start + 2_500])) == {INSERTED}

    columns = "order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total"
    table = {record[0]: tuple(record) for record in await sql.fetch(f"SELECT {columns} FROM orders")}
    assert len(table) == 10_000
    view: dict[str, list[tuple[Any, ...]]] = {order_id: [] for order_id in orders}
    for record in await sql.fetch("SELECT * FROM order_lines WHERE source = '' ORDER BY order_id, line_no"):
        view[record["order_id"]].append(tuple(record)[1:-1])
    for order_id, order in orders.items():
        assert table[order_id] == (
            order.id, order.status, order.currency, order.customer_id, order.country, order.placed_at, order.updated_at,
            len(order.lines), order.total,
        )  # fmt: skip
        assert view[order_id] == [
            (number, line.sku, line.description, line.quantity, line.unit_price, line.quantity * line.unit_price)
            for number, line in enumerate(order.lines, 1)
        ]
    assert max(map(len, view.values())) == 705
    assert await sql.fetchval("SELECT sum(total) FROM orders") == await sql.fetchval(
        "SELECT sum(amount) FROM order_lines"
    )


async def test_the_edges_of_what_a_document_may_hold_can_be_stored(store: OrderStore, sql: Any) -> None:
    lines = tuple(
        OrderLine("☕ \\ \" ' \x01", quantity, Decimal(price), text)
        for quantity, price, text in [
            (-(2**53), "9.99E+29", None), (2**53, "-1E+30", ""), (0, "0", "\U0001f600"), (1, "-0", "\ue000\x7f"),
        ]
    )  # fmt: skip
    early, late = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    order = Order("A._:-9", "", "", early, lines, late, "'); DROP TABLE orders; --", "")

    assert await store.upsert([OrderRow.of(order, T0, 1, 1.0)]) == [INSERTED]

    stored = await sql.fetchrow("SELECT * FROM orders")
    assert (stored["placed_at"], stored["updated_at"], stored["total"]) == (early, late, order.total)
    prices = [record[0] for record in await sql.fetch("SELECT unit_price FROM order_lines ORDER BY line_no")]
    assert prices == [line.unit_price for line in lines]


# -- refusals and outages -----------------------------------------------------------------------------------------


async def test_one_refused_row_and_nothing_of_the_batch_is_stored(store: OrderStore, sql: Any) -> None:
    await sql.execute("ALTER TABLE orders ADD CONSTRAINT no_test_orders CHECK (status <> 'secret-status')")

    with pytest.raises(RowsRefused, match="no_test_orders") as refused:
        await store.upsert([row("a"), row("b", status="secret-status"), row("c")])

    assert "17850" not in str(refused.value)
    assert await sql.fetchval("SELECT count(*) FROM orders") == 0
    assert await store.upsert([row("a"), row("c")]) == [INSERTED, INSERTED]


async def trigger(sql: Any, body: str) -> None:
    await sql.execute(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF new.status = 'bad' THEN {body}; END IF; RETURN new; END $$"
    )
    await sql.execute("CREATE TRIGGER look BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION look()")


_RAISED = "a function of the database raised an error"
# Bodies of triggers that a user may add, by the SQLSTATE of their error for one row. Its text may hold any value of the row.
TRIGGERS = {
    "P0001": ("RAISE EXCEPTION 'unknown customer %', new.country", RowsRefused, _RAISED),
    "P0004": ("ASSERT false, new.country", RowsRefused, _RAISED),
    "09000": ("RAISE EXCEPTION '%', new.country USING ERRCODE = '09000'", RowsRefused, _RAISED),
    "42501": ("RAISE EXCEPTION '%', new.country USING ERRCODE = 'insufficient_privilege'", RowsRefused, _RAISED),
    "SHOP1": ("RAISE EXCEPTION '%', new.country USING ERRCODE = 'SHOP1'", RowsRefused, _RAISED),
    "21000": ("PERFORM (SELECT n FROM generate_series(1, 2) AS n)", RowsRefused, _RAISED),
    "22P02": ("new.line_count := new.country", RowsRefused, _RAISED),
    "23514": (
        "RAISE EXCEPTION '%', new.country USING ERRCODE = '23514', CONSTRAINT = 'known_country'",
        RowsRefused,
        f"{_RAISED}, constraint known_country",
    ),
    "53300": ("RAISE EXCEPTION '%', new.country USING ERRCODE = '53300'", StoreUnavailable, _RAISED),
    "42601": ("EXECUTE 'SELECT FROM ' || quote_literal(new.country)", RowsRefused, "syntax error at or near …"),
}


@pytest.mark.parametrize("sqlstate", TRIGGERS)
async def test_what_a_trigger_raises_is_told_without_its_text(store: OrderStore, sql: Any, sqlstate: str) -> None:
    body, error, told = TRIGGERS[sqlstate]
    await trigger(sql, body)

    with pytest.raises(error) as failed:
        await store.upsert([row("a"), msgspec.structs.replace(row("b", status="bad"), country='Anna "A." Nilsen')])

    assert told in str(failed.value)
    assert sqlstate in str(failed.value) or sqlstate == "42601"  # which is translated for the whole table first
    assert "Nilsen" not in str(failed.value)
    assert not getattr(failed.value, "is_certain", False)
    assert await store.upsert([row("a")]) == [INSERTED]


async def test_a_value_that_an_index_cannot_take_is_reported_without_it(store: OrderStore, sql: Any) -> None:
    await sql.execute("CREATE INDEX ON orders ((country::integer))")

    with pytest.raises(RowsRefused, match=r"^invalid input syntax for type integer: … \(22P02\)$"):
        await store.upsert([msgspec.structs.replace(row(), country='Anna "A." Nilsen')])


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_a_text_that_the_server_cannot_hold_is_certainly_the_fault_of_a_row(store: OrderStore, text: str) -> None:
    with pytest.raises(RowsRefused) as refused:
        await store.upsert([row("a"), msgspec.structs.replace(row("b"), customer_id=text)])

    assert "17850" not in str(refused.value)
    assert refused.value.is_certain


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "53100", "53300", "55000", "57P03"])
async def test_a_trigger_that_says_that_something_is_unavailable_refuses_no_row(
    store: OrderStore, sql: Any, sqlstate: str
) -> None:
    await trigger(sql, f"RAISE EXCEPTION 'later' USING ERRCODE = '{sqlstate}'")

    with pytest.raises(StoreUnavailable, match=sqlstate):
        await store.upsert([row("a"), row("b", status="bad")])


async def test_a_row_that_a_policy_does_not_allow_is_refused_and_a_missing_right_is_not(dsn: str, sql: Any) -> None:
    role = f"limited_{secrets.token_hex(6)}"
    await sql.execute(f"CREATE ROLE {role}")
    await sql.execute(f"GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT, INSERT, UPDATE ON orders TO {role}")
    await sql.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    await sql.execute("CREATE POLICY all_but_bad ON orders USING (true) WITH CHECK (status <> 'bad')")
    connection = Reconnecting(as_admin(dsn), pooled=False)
    store = OrderStore(connection)
    await connection.fetch(f"SET ROLE {role}")

    with pytest.raises(StoreDenied, match="permission denied for table erased_orders"):
        await store.upsert([row("a")])

    await sql.execute(f"GRANT SELECT ON erased_orders TO {role}")
    await connection.fetch(f"SET ROLE {role}")
    with pytest.raises(RowsRefused, match="row-level security"):
        await store.upsert([row("a"), row("b", status="bad")])
    connection.close()
    await sql.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_transaction_timeout_of_the_role_ends_a_statement_that_is_too_slow(dsn: str, sql: Any) -> None:
    await trigger(sql, "PERFORM pg_sleep(60)")
    connection = Reconnecting(dsn, pooled=False)
    await connection.fetch("SET transaction_timeout = 200")

    with pytest.raises(StoreTooSlow):
        await OrderStore(connection).upsert([row(status="bad")])
    connection.close()


async def test_a_full_transaction_ends_and_its_connection_is_used_again(store: OrderStore, sql: Any) -> None:
    await sql.execute("ALTER TABLE orders ADD CONSTRAINT no CHECK (status <> 'no')")

    for _ in range(5):
        with pytest.raises(RowsRefused):
            await store.upsert([row(status="no")])

    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    assert await sql.fetchval(query) <= 2
    assert await store.upsert([row()]) == [INSERTED]


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_connection_lost_while_a_statement_runs_is_told_from_one_lost_before(dsn: str, *, pooled: bool) -> None:
    connection = Reconnecting(dsn, pooled=pooled)

    with pytest.raises(StoreInterrupted):
        await connection.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
    assert await connection.fetch("SELECT 1") == [(1,)]
    connection.close()

    with pytest.raises(StoreUnavailable) as refused:
        await Reconnecting("postgresql://127.0.0.1:1/nothing", pooled=pooled).fetch("SELECT 1")
    assert not isinstance(refused.value, StoreInterrupted)


@pytest.mark.parametrize("statement", ["DROP TABLE orders CASCADE", "ALTER TABLE orders DROP COLUMN country"])
async def test_what_is_no_rows_fault_holds_the_batch(store: OrderStore, sql: Any, statement: str) -> None:
    await sql.execute(statement)

    with pytest.raises(StoreUnavailable):
        await store.upsert([row()])


async def test_a_table_that_the_statement_does_not_support_is_for_a_person_to_put_right(
    store: OrderStore, sql: Any
) -> None:
    await sql.execute("CREATE RULE nothing AS ON INSERT TO orders DO INSTEAD NOTHING")

    with pytest.raises(StoreRefused, match="cannot perform INSERT RETURNING"):
        await store.upsert([row()])

    await sql.execute("DROP RULE nothing ON orders")
    assert await store.upsert([row()]) == [INSERTED]


async def test_a_connection_that_was_ended_is_replaced(store: OrderStore, sql: Any) -> None:
    await store.upsert([row("a")])
    await sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    effects = None
    for _ in range(3):  # at most once for each connection of the store
        try:
            effects = await store.upsert([row("b")])
            break
        except StoreUnavailable:
            continue

    assert effects == [INSERTED]


async def test_a_wrong_password_or_database_is_for_a_person_to_put_right(servers: EmbeddedServers, dsn: str) -> None:
    for wrong in (dsn.replace(servers.postgres.password, "wrong"), dsn + "-not-there"):
        with pytest.raises(StoreRefused) as refused:
            async with OrderStore.open(wrong):
                pass
        assert servers.postgres.password not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [("?sslmode=sometimes", "INGEST_POSTGRES_DSN: .*sslmode"), ("?no_such_parameter=1", "no_such_parameter")],
)
async def test_a_dsn_that_cannot_be_used_is_for_a_person_to_put_right(dsn: str, wrong: str, error: str) -> None:
    with pytest.raises(UserError, match=error):
        async with OrderStore.open(dsn + wrong):
            pass


# -- remains of a statement that exceeded its time -----------------------------------------------------

OURS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


def hurried(dsn: str, *, pooled: bool) -> Reconnecting:
    """A connection that waits for a second where others wait for fifteen."""
    return Reconnecting(dsn, pooled=pooled, timeout=1.0)


@pytest.mark.parametrize("pooled", [False, True])
async def test_attempts_at_a_locked_table_leave_no_server_process_behind(dsn: str, sql: Any, *, pooled: bool) -> None:
    connection = hurried(dsn, pooled=pooled)
    store = OrderStore(connection)

    async with connected(dsn) as other, sql.transaction():
        await sql.execute("LOCK TABLE orders IN SHARE MODE")  # as CREATE INDEX does
        most = 0
        for _ in range(5):
            with pytest.raises(StoreTooSlow):
                await store.upsert([row()])
            most = max(most, await other.fetchval(f"{OURS} AND pid <> $1", sql.get_server_pid()))

    assert most <= 1
    assert await store.upsert([row()]) == [INSERTED]
    connection.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_statement_ends_by_itself_though_nobody_can_ask_the_server_to_cancel_it(
    dsn: str, sql: Any, *, pooled: bool
) -> None:
    parts = urlsplit(dsn)
    waiting = f"{OURS} AND wait_event_type = 'Lock'"

    async def waits() -> bool:
        return bool(await other.fetchval(waiting))

    async def is_over() -> bool:
        return not await waits()

    with Proxy(parts.port or 0) as network:
        account = parts.netloc.rpartition("@")[0]
        connection = hurried(urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{network.port}")), pooled=pooled)
        store = OrderStore(connection)
        await store.upsert([row()])
        async with connected(dsn) as other, sql.transaction():
            await sql.execute("LOCK TABLE orders IN SHARE MODE")
            network.refuse()
            upserting = asyncio.create_task(store.upsert([row(fetched=1)]))
            await eventually(waits)
            network.freeze()
            with pytest.raises(StoreTooSlow):
                await upserting

            await eventually(is_over)
        connection.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_lock_that_lasts_is_told_from_a_slow_statement_and_the_connection_stays(
    dsn: str, sql: Any, *, pooled: bool
) -> None:
    connection = Reconnecting(dsn, pooled=pooled, timeout=5.0, lock_timeout=0.2)
    store = OrderStore(connection)
    await store.upsert([row()])
    [[process]] = await connection.fetch("SELECT pg_backend_pid()")

    async with sql.transaction():
        await sql.execute("SELECT FROM orders FOR UPDATE")
        for upsert in (store.upsert, store.upsert_unlocked):
            with pytest.raises(StoreLocked):
                await upsert([row(fetched=1)])

    assert await store.upsert_unlocked([row(fetched=1)]) == [UNCHANGED]
    [[timeout, same]] = await connection.fetch("SELECT current_setting('lock_timeout'), pg_backend_pid() = $1", process)
    assert (timeout, same) == ("200ms", True)
    connection.close()


@pytest.mark.parametrize("mode", ["SHARE", "ACCESS EXCLUSIVE"])
@pytest.mark.parametrize("table", ["orders", "erased_orders"])
async def test_a_lock_of_a_table_is_told_from_one_of_a_row(dsn: str, sql: Any, table: str, mode: str) -> None:
    connection = Reconnecting(dsn, pooled=False, timeout=5.0, lock_timeout=0.2)
    store = OrderStore(connection)
    await store.upsert([row()])

    async with sql.transaction():
        await sql.execute(f"LOCK TABLE {table} IN {mode} MODE")
        if (table, mode) == ("erased_orders", "SHARE"):
            assert await store.upsert_unlocked([row(fetched=1)]) == [UNCHANGED]  # which is only read
        else:
            for call, argument in ((store.upsert_unlocked, [row(fetched=1)]), (store.locked, ["a"])):
                with pytest.raises(StoreUnavailable) as raised:
                    await call(argument)
                assert not isinstance(raised.value, StoreLocked)
    connection.close()


async def test_a_statement_that_the_server_lets_go_on_is_cancelled(dsn: str, sql: Any) -> None:
    connection = hurried(dsn, pooled=False)
    await connection.fetch("SET statement_timeout = 0")

    with pytest.raises(StoreTooSlow, match="within 1 s"):
        await connection.fetch("SELECT pg_sleep(600)")

    async def is_gone() -> bool:
        return not await sql.fetchval(OURS)

    await eventually(is_gone, within=5)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server for this test only."""
    with embedded_servers(durable=True) as servers:
        yield servers.postgres


async def test_a_server_that_stops_and_starts_again_is_unavailable_in_between(own_postgres: PostgresServer) -> None:
    await migrate(own_postgres.dsn, migrations())

    async with OrderStore.open(own_postgres.dsn) as store:
        await store.upsert([row("a")])
        own_postgres.stop("fast")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.upsert([row("b")])
        with pytest.raises(StoreUnavailable):
            await overview(own_postgres.dsn)
        own_postgres.start()

        assert await store.upsert([row("a"), row("b")]) == [UNCHANGED, INSERTED]

        own_postgres.stop("immediate")  # as in a crash
        own_postgres.start()
        effects = []
        while not effects:
            try:
                effects = await store.upsert([row("a"), row("b"), row("c")])
            except StoreUnavailable:
                continue
        assert effects == [UNCHANGED, UNCHANGED, INSERTED]


async def test_an_order_whose_stored_lines_are_damaged_is_refused_and_others_are_stored(
    own_postgres: PostgresServer,
) -> None:
    await migrate(own_postgres.dsn, migrations())
    async with connected(own_postgres.dsn) as sql:
        await sql.execute("ALTER TABLE orders ALTER COLUMN lines SET STORAGE EXTERNAL")
        async with OrderStore.open(own_postgres.dsn) as store:
            await store.upsert([row("damaged", updated=1, lines=100), row("sound", updated=1)])
        path = own_postgres.data / await sql.fetchval(
            "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'orders'"
        )
    own_postgres.stop()
    path.write_bytes(b"garbage" + path.read_bytes()[7:])
    own_postgres.start()

    async with OrderStore.open(own_postgres.dsn) as store:
        with pytest.raises(RowsRefused, match=r"invalid page in block 0.*XX001") as refused:
            await store.upsert([row("damaged", updated=2, lines=100), row("sound", updated=2, status="paid")])

        assert not refused.value.is_certain
        assert await store.upsert([row("sound", updated=2, status="paid")]) == [CHANGED]


# -- the table at a glance ----------------------------------------------------------------------------------------


async def test_the_overview_counts_the_orders(store: OrderStore, sql: Any, dsn: str) -> None:
    empty = await overview(dsn)
    await store.upsert([row("a"), row("b")])

    filled = await overview(dsn)

    assert (empty.stored, empty.last_ingested_at) == (0, None)
    assert (filled.stored, filled.last_ingested_at) == (2, await sql.fetchval("SELECT max(ingested_at) FROM orders"))


async def test_a_database_without_our_tables_holds_no_orders(empty_dsn: str) -> None:
    assert (await overview(empty_dsn)).stored == 0


async def test_a_server_that_does_not_answer_in_time_is_told_in_words(dsn: str) -> None:
    async with connect(dsn) as connection:
        with pytest.raises(StoreUnavailable, match="no answer in time"), translated():
            await connection.execute("SELECT pg_sleep(60)", timeout=0.05)
