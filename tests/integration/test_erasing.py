"""Erasing an order by hand, as the documentation tells: for good, also beside workers that are storing it."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from scene import document
from support import connected, eventually

from ingest.domain.delivery import OrderRow
from ingest.domain.order import decode_order
from ingest.store.orders import OrderStore

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run.md"
ERASE = next(
    sql for sql in re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL) if "BEGIN" in sql
)


@pytest.fixture
async def orders(dsn: str) -> AsyncIterator[OrderStore]:
    async with OrderStore.open(dsn) as store:
        yield store


def row() -> OrderRow:
    return OrderRow(decode_order(document("536365"), "536365"), datetime.now(UTC), 1, 0.0)


async def test_an_order_that_was_erased_is_not_stored_again(dsn: str, orders: OrderStore) -> None:
    await orders.upsert([row()])

    async with connected(dsn) as owner:
        await owner.execute(ERASE)
        await orders.upsert([row()])

        assert await owner.fetchval("SELECT count(*) FROM orders") == 0
        assert await owner.fetchval("SELECT order_id FROM erased_orders") == "536365"


async def test_a_batch_that_is_being_stored_is_waited_for_and_the_next_finds_it_erased(
    dsn: str, orders: OrderStore
) -> None:
    async with connected(dsn) as worker, connected(dsn) as owner, connected(dsn) as watcher:
        storing = worker.transaction()
        await storing.start()
        await worker.execute(
            "INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at,"
            " attempts, enqueued_at, ingested_at)"
            " VALUES ('536365', 'placed', 'EUR', now(), 0, 0, '[]', now(), now(), 1, now(), now())"
        )

        async def waiting(count: int) -> bool:
            return count == await watcher.fetchval(
                "SELECT count(*) FROM pg_locks JOIN pg_class ON oid = relation WHERE relname = 'orders' AND NOT granted"
            )

        erasing = asyncio.create_task(owner.execute(ERASE))
        await eventually(lambda: waiting(1))
        next_batch = asyncio.create_task(orders.upsert([row()]))
        await eventually(lambda: waiting(2))
        await storing.commit()
        await asyncio.gather(erasing, next_batch)

        assert await watcher.fetchval("SELECT count(*) FROM orders") == 0
