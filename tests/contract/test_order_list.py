"""Stored orders are listed by a real PostgreSQL, by ID or by the time of their last change."""

from datetime import UTC, datetime, timedelta

import pytest
from shipped import as_account
from support import connected

from ingest.domain.orders.order_filter import OrderFilter, OrderPlace, OrderPosition
from ingest.operations.stored_orders.order_list import OrderPage, id_pages, list_page
from ingest.store.connections.pool import Pool
from ingest.store.orders.order_reading import OrderReader, newest_orders
from ingest.store.orders.search_indexes import INDEXES, create_search_indexes

START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
# Orders 000 to 099 of two sources, in the reverse order of their last changes.
_FILL = """
INSERT INTO orders (source, order_id, status, currency, customer_id, placed_at, line_count, total, lines, version, fetched_at,
                    attempts, enqueued_at, ingested_at, attributes)
SELECT source, to_char(n, 'FM000'), CASE WHEN n % 10 = 0 THEN 'paid' ELSE 'placed' END, 'GBP', n % 7, $1, 0, 0, '[]', $1, $1, 1, $1,
       $1::timestamptz + make_interval(mins => 99 - n), jsonb_build_object('channel', 'web' || n % 3, 'big', n % 2 = 0, 'count', n)
FROM generate_series(0, 99) AS n, unnest(ARRAY['de', 'fr']) AS source
"""


async def all_of(readers: dict[str, OrderReader], selection: OrderFilter, limit: int) -> list[tuple[str, str]]:
    listed: list[tuple[str, str]] = []
    page = OrderPage((), ("", OrderPosition()))
    while page.next is not None:
        page = await list_page(readers, selection, page.next, limit)
        assert len(page.orders) <= limit
        listed += [(order["source"], order["order"]["id"]) for order in page.orders]
    return listed


@pytest.mark.parametrize("has_indexes", [False, True])
async def test_filters_combine_over_sources_and_pages(either_dsn: str, *, has_indexes: bool) -> None:
    async with connected(either_dsn) as connection:
        await connection.execute(_FILL.replace("$1", f"'{START.isoformat()}'"))
    if has_indexes:
        assert await create_search_indexes(as_account(either_dsn, "ingest_owner")) == list(INDEXES)
        assert await create_search_indexes(as_account(either_dsn, "ingest_owner")) == []
    hour = {"stored_from": START + timedelta(minutes=20), "stored_to": START + timedelta(minutes=80)}
    async with Pool.open(either_dsn, size=1) as pool:
        readers = {source: OrderReader(pool, source) for source in ("de", "fr")}

        everything = await all_of(readers, OrderFilter(), 13)
        within = await all_of(readers, OrderFilter(**hour), 13)  # type: ignore[arg-type]
        some = await all_of(readers, OrderFilter(status="paid", attributes=(("big", "true"), ("channel", "web1"))), 13)
        counted = await all_of(readers, OrderFilter(attributes=(("count", "7"),)), 13)
        begun = await all_of(readers, OrderFilter(prefix="01", customer_id="3"), 13)
        ids = [at.order_id async for page in id_pages(readers["de"], OrderFilter(**hour)) for at in page]  # type: ignore[arg-type]

    assert everything == [(source, f"{n:03}") for source in ("de", "fr") for n in range(100)]
    assert within == [(source, f"{n:03}") for source in ("de", "fr") for n in range(79, 19, -1)]
    assert some == [(source, f"{n:03}") for source in ("de", "fr") for n in (10, 40, 70)]
    assert counted == [("de", "007"), ("fr", "007")]
    assert begun == [("de", "010"), ("de", "017"), ("fr", "010"), ("fr", "017")]
    assert ids == [f"{n:03}" for n in range(79, 19, -1)]


@pytest.mark.parametrize("is_sorted", [False, True])
async def test_the_newest_orders_of_all_sources_are_first_page_by_page(either_dsn: str, *, is_sorted: bool) -> None:
    async with connected(either_dsn) as connection:
        await connection.execute(_FILL.replace("$1", f"'{START.isoformat()}'"))
        if not is_sorted:
            await connection.execute("UPDATE pg_class SET reltuples = 1e6 WHERE relname = 'orders'")
    listed: list[tuple[str, str]] = []
    place, rows = None, [{}]
    async with Pool.open(either_dsn, size=1) as pool:
        while rows:
            rows, is_by_time = await newest_orders(pool, ["de", "fr"], OrderFilter(status="placed"), place, 13)
            assert is_by_time is is_sorted
            listed += [(row["source"], row["order"]["id"]) for row in rows]
            place = OrderPlace(rows[-1]["row"]["ingested_at"], *listed[-1]) if rows else place

    placed = [f"{n:03}" for n in range(100) if n % 10]
    if is_sorted:
        assert listed == [(source, order_id) for order_id in placed for source in ("fr", "de")]
    else:
        assert listed == [(source, order_id) for source in ("fr", "de") for order_id in reversed(placed)]
