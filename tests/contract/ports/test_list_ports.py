"""The guarantees of the parts that readings of a list use, in PostgreSQL and in memory."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

import pytest
from fakes.listed_orders import MemoryOrders, MemoryPolls, MemoryRow
from support import connected

from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.polling import PollResult
from ingest.domain.orders.order import Order
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connections.pool import Pool
from ingest.store.orders.listed_changes import changed_orders
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import Rows
from ingest.store.polls import Polls

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass
class Records:
    """What readings use, with the orders `(ID, updated, fetched)` stored."""

    connection: Any
    rows: Any
    polls: Any
    take_by_other: Any


def row(name: str, updated: float, fetched: float) -> OrderRow:
    order = Order(name, "placed", "GBP", T0, (), at(updated))
    return OrderRow.of(order, at(fetched), attempts=1, enqueued_at=0.0)


@asynccontextmanager
async def opened(kind: str, dsn: str, stored: list[tuple[str, float, float]]) -> AsyncIterator[Records]:
    if kind == "memory":
        orders = MemoryOrders()
        for name, updated, fetched in stored:
            orders.store(name, MemoryRow(at(updated), at(fetched), b""))
        polls = MemoryPolls()
        yield Records(orders, orders, polls, partial(polls.take, holder="b"))
        return
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(OrderStore.open(dsn))
        # Another shop has the same IDs, all with other times, and a third one has erased them.
        other = await stack.enter_async_context(OrderStore.open(dsn, "other"))
        for name, updated, fetched in stored:
            await store.upsert([row(name, updated, fetched)])
        names = {name for name, _, _ in stored} | {"missing", "c"}
        await other.upsert([row(name, 70.0, 10**6) for name in names])
        pool = await stack.enter_async_context(Pool.open(dsn, size=1))
        sql = await stack.enter_async_context(connected(dsn))
        await sql.execute("INSERT INTO erased_orders (source, order_id) SELECT 'erased', unnest($1::text[])", [*names])
        rows, polls = await stack.enter_async_context(Rows.open(dsn)), Polls(pool, "", "a")
        yield Records(pool, rows, polls, Polls(pool, "", "b").take)


@pytest.fixture(params=["memory", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Literal["memory", "postgresql"]:
    return request.param


async def test_missing_older_and_untimed_orders_have_changed(kind: str, dsn: str) -> None:
    listed = [
        ListedOrder("missing", at(5)),
        ListedOrder("older", at(61)),
        ListedOrder("same", at(60)),
        ListedOrder("newer", at(59)),
        ListedOrder("untimed", None),
    ]
    stored = [(name, 60.0, 600.0) for name in ("older", "same", "newer", "untimed")]
    async with opened(kind, dsn, stored) as records:
        changed = await changed_orders(records.connection, "", listed, ListClock(at(10_000)))

    assert changed == {"missing": True, "older": False, "untimed": False}


async def test_an_order_that_was_fetched_within_the_second_of_its_version_is_fetched_once_more(
    kind: str, dsn: str
) -> None:
    stored = [("early", 61.0, 61.4), ("late", 61.0, 66.5), ("finer", 61.7, 61.9), ("minute", 135.0, 150.0)]
    listed = [ListedOrder("early", at(61)), ListedOrder("late", at(61)), ListedOrder("minute", at(120))]
    async with opened(kind, dsn, stored) as records:
        changed = [
            await changed_orders(records.connection, "", listed, ListClock(at(now))) for now in (62.0, 100.0, 200.0)
        ]
        finer = await changed_orders(records.connection, "", [ListedOrder("finer", at(61))], ListClock(at(99)))

    assert [set(found) for found in changed] == [set(), {"early"}, {"early", "minute"}]
    assert set(finer) == {"finer"}


async def test_a_later_version_wins_and_of_one_version_the_later_fetch(kind: str, dsn: str) -> None:
    stored = [("a", 60.0, 600.0), ("a", 50.0, 700.0), ("b", 60.0, 600.0), ("b", 70.0, 500.0)]
    async with opened(kind, dsn, stored) as records:
        facts = await records.rows.facts(["a", "b", "c"], ListClock(T0))
        changed = [name async for page in records.rows.changed_ids(at(65), at(75)) for name in page]

    assert {fact.order_id: fact.version for fact in facts} == {"a": at(60), "b": at(70)}
    assert changed == ["b"]


async def test_a_position_is_kept_until_the_turn_that_has_it_moves_it(kind: str, dsn: str) -> None:
    async with opened(kind, dsn, []) as records:
        polls = records.polls
        first = await polls.take(at(1))
        assert await polls.fail(first, at(2), "error", 0.0)
        second = await polls.take(at(9), is_due=True)
        assert not await polls.advance(first, PollResult(at(3)), 0.0)
        assert await polls.advance(second, PollResult(at(4)), 0.0)
        third = await polls.take(at(9), is_due=True)

    assert (first.position, second.position, third.position) == (at(1), at(2), at(4))
    assert (first.failures, second.failures, third.failures) == (0, 1, 0)


async def test_another_process_has_no_turn_while_the_list_is_read_and_until_it_is_due(kind: str, dsn: str) -> None:
    async with opened(kind, dsn, []) as records:
        polls = records.polls
        turn = await polls.take(at(1))
        reading, others = await polls.state(), [await records.take_by_other(at(1))]
        assert await polls.advance(turn, PollResult(at(2)), 60.0)
        read, others = await polls.state(), [*others, await records.take_by_other(at(3))]

    assert others == [None, None]
    assert (reading.is_reading, read.is_reading, read.position) == (True, False, at(2))
    assert 50 < read.due_in <= 60
