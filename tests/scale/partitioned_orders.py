"""Compares a large table of orders with the same table in partitions: storing, reading, erasing, and the division itself.

Run it with `make partitioned-orders`. It needs disk space for two copies, about 0.75 GB for a million orders.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec
from support import connected

from ingest.domain.orders.order import Order, OrderLine
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers.postgres import PostgresServer
from ingest.lab.usage import cpu_seconds
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_reading import OrderFilter, OrderReader
from ingest.store.orders.order_store import OrderStore
from ingest.store.partitioning.partitioning import set_partitions
from ingest.store.pool import Pool
from ingest.store.schema import migrate, migrations

_FIRST = 100_000_000
_CHUNK = 1_000_000
_SETTINGS = {
    "shared_buffers": "1GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
}
_ORDER = Order(
    id="",
    status="placed",
    currency="GBP",
    placed_at=datetime(2026, 1, 1, tzinfo=UTC),
    lines=(OrderLine("85123A", 6, Decimal("2.55"), "WHITE HANGING HEART T-LIGHT HOLDER"),),
    updated_at=None,
    customer_id="17850",
    country="United Kingdom",
)
_FILL = """
INSERT INTO orders (order_id, status, currency, customer_id, country, placed_at, line_count, total, lines, version, fetched_at,
                    attempts, enqueued_at, ingested_at)
SELECT n::text, 'placed', 'GBP', '17850', 'United Kingdom', '2026-01-01', 1, 15.3,
       '[{"sku": "85123A", "quantity": "6", "unit_price": "2.55", "description": "WHITE HANGING HEART T-LIGHT HOLDER"}]',
       '2026-01-01', '2026-01-01', 1, '2026-01-01', '2026-01-01'
FROM generate_series($1::bigint, $2::bigint) AS n
"""
_SIZES = """
SELECT max(pg_relation_size(relid)), max(pg_indexes_size(relid)), sum(pg_total_relation_size(relid))::float8, count(*)
FROM pg_stat_user_tables WHERE relname ~ '^orders(_\\d+)?$' AND pg_relation_size(relid) > 0
"""
_GB = 1e9


def say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)  # noqa: T201


class Measurement:
    """Measures one form of the table."""

    def __init__(self, server: PostgresServer, orders: int, seconds: float) -> None:
        self._dsn = server.dsn
        self._server = server
        self._orders = orders
        self._seconds = seconds
        self._random = random.Random(1)
        self._next = _FIRST + orders
        self._fetched = datetime.now(UTC)

    @property
    def next_id(self) -> int:
        """The first number that no order has."""
        return self._next

    async def run(self) -> None:
        async with OrderStore.open(self._dsn) as store, Pool.open(self._dsn) as pool:
            reader = OrderReader(pool)
            await self._rate("new orders", lambda: store.upsert(self._rows(self._new())))
            await self._rate("changed orders", lambda: store.upsert(self._rows(self._some(100))))
            await self._time("find an order", lambda: reader.find(self._some(1)))
            await self._time("list 100 orders", lambda: reader.page(OrderFilter(), self._some(1)[0], 100))
            await self._time("erase an order", lambda: self._erase(self._some(1)))
        async with connected(self._dsn) as sql:
            largest, index, total, tables = await sql.fetchrow(_SIZES)
            say(
                f"{tables} tables, {total / _GB:.1f} GB: the largest {largest / _GB:.2f} GB, its index {index / _GB:.2f} GB"
            )
            [name] = await sql.fetchrow(
                "SELECT CASE WHEN to_regclass('orders_0') IS NULL THEN 'orders' ELSE 'orders_0' END"
            )
            started = time.monotonic()
            await sql.execute(f"VACUUM {name}", timeout=7200)
            say(f"vacuum of {name} after these changes: {time.monotonic() - started:.1f} s")

    async def _rate(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        took, cpu = await self._repeated(act, self._seconds)
        rate, each = len(took) * 100 / sum(took), cpu / len(took) / 100 * 1e6
        say(f"{what}: {rate:,.0f} orders/s in batches of 100, {each:.1f} µs of the server's CPU each")

    async def _time(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        took, cpu = await self._repeated(act, self._seconds / 2)
        median, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
        say(
            f"{what}: median {median * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms,"
            f" {cpu / len(took) * 1000:.2f} ms of the server's CPU, {len(took):,} times"
        )

    async def _repeated(self, act: Callable[[], Awaitable[object]], seconds: float) -> tuple[list[float], float]:
        """Return the seconds of each call, and the CPU seconds of the server for all of them."""
        await act()
        took: list[float] = []
        before, ends = cpu_seconds(self._server.pid), time.monotonic() + seconds
        while time.monotonic() < ends:
            started = time.perf_counter()
            await act()
            took.append(time.perf_counter() - started)
        return took, cpu_seconds(self._server.pid) - before

    def _rows(self, order_ids: list[str]) -> list[OrderRow]:
        self._fetched += timedelta(seconds=1)
        status = f"at {self._fetched:%H:%M:%S}"
        return [
            OrderRow.of(msgspec.structs.replace(_ORDER, id=order_id, status=status), self._fetched, 1, 1.0)
            for order_id in order_ids
        ]

    def _new(self) -> list[str]:
        self._next += 100
        return [str(number) for number in range(self._next - 100, self._next)]

    def _some(self, count: int) -> list[str]:
        return [str(_FIRST + self._random.randrange(self._orders)) for _ in range(count)]

    async def _erase(self, order_ids: list[str]) -> None:
        await erase_rows(self._dsn, order_ids, operation=uuid4(), actor="bench", action="orders.erase")


async def compare(server: PostgresServer, orders: int, partitions: int, seconds: float) -> None:
    dsn = server.dsn
    await migrate(dsn, migrations())
    started = time.monotonic()
    async with connected(dsn) as sql:
        for first in range(_FIRST, _FIRST + orders, _CHUNK):
            await sql.execute(_FILL, first, min(first + _CHUNK, _FIRST + orders) - 1, timeout=3600)
        say(f"{orders:,} orders in one table after {time.monotonic() - started:.0f} s")
        await sql.execute("VACUUM ANALYZE orders", timeout=7200)
        await sql.execute("CHECKPOINT", timeout=7200)
    plain = Measurement(server, orders, seconds)
    await plain.run()

    started, before = time.monotonic(), cpu_seconds(server.pid)
    await set_partitions(dsn, partitions)
    took, cpu = time.monotonic() - started, cpu_seconds(server.pid) - before
    say(f"divided into {partitions} partitions after {took:.0f} s, {cpu:.0f} s of the server's CPU")
    async with connected(dsn) as sql:
        await sql.execute("VACUUM orders", timeout=7200)
        await sql.execute("CHECKPOINT", timeout=7200)
    await Measurement(server, plain.next_id - _FIRST, seconds).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=50_000_000)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the disk space is")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="ingest-", dir=given.directory) as folder:
        Path(folder).chmod(0o711)
        with PostgresServer(Path(folder) / "server", settings=_SETTINGS) as server:
            asyncio.run(compare(server, given.orders, given.partitions, given.seconds))


if __name__ == "__main__":
    main()
