"""Compares a large table of orders with the same table in partitions: storing, reading, erasing, and the division itself.

Run it with `make partitioned-orders`. Both tables are filled first, and are then measured in turn, so that other load on the machine
concerns both. It needs disk space for two copies, about 0.75 GB for a million orders.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec
from support import connected, with_database

from ingest.domain.orders.order import Order, OrderLine
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers.postgres import PostgresServer
from ingest.lab.usage import cpu_seconds
from ingest.store.connections.connection import COMMAND_TIMEOUT
from ingest.store.connections.pool import Pool
from ingest.store.orders.erasing import erase_rows
from ingest.store.orders.order_reading import OrderFilter, OrderReader
from ingest.store.orders.order_store import OrderStore
from ingest.store.partitioning.partitioning import set_partitions
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
    """Measures one form of the table, in several rounds."""

    def __init__(self, name: str, dsn: str, server: PostgresServer, orders: int) -> None:
        self.name = name
        self.dsn = dsn
        self._server = server
        self._orders = orders
        self._random = random.Random(1)
        self._next = _FIRST + orders
        self._fetched = datetime.now(UTC)
        # The seconds of each call, and the CPU seconds of the server for all of them.
        self._took: defaultdict[str, list[float]] = defaultdict(list)
        self._cpu: defaultdict[str, float] = defaultdict(float)

    async def run(self, seconds: float) -> None:
        """Measure each operation for some seconds."""
        async with OrderStore.open(self.dsn) as store, Pool.open(self.dsn) as pool:
            reader = OrderReader(pool)
            operations: dict[str, Callable[[], Awaitable[object]]] = {
                "store 100 new orders": lambda: store.upsert(self._rows(self._new())),
                "store 100 changed orders": lambda: store.upsert(self._rows(self._some(100))),
                "find an order": lambda: reader.find(self._some(1)),
                "list 100 orders": lambda: reader.page(OrderFilter(), self._some(1)[0], 100),
                "erase an order": lambda: self._erase(self._some(1)),
            }
            for name, operation in operations.items():
                await self._repeated(name, operation, seconds)

    def report(self) -> None:
        """Print the results of all rounds."""
        for name, took in self._took.items():
            median, cpu = statistics.median(took) * 1000, self._cpu[name] / len(took) * 1000
            say(f"{self.name}: {name}: median {median:.2f} ms, CPU of the server {cpu:.2f} ms, {len(took):,} times")

    async def tidy(self) -> None:
        """Print the sizes, and vacuum one table."""
        async with connected(self.dsn) as sql:
            largest, index, total, tables = await sql.fetchrow(_SIZES)
            sizes = f"the largest {largest / _GB:.2f} GB, its index {index / _GB:.2f} GB"
            say(f"{self.name}: {tables} tables, {total / _GB:.1f} GB: {sizes}")
            table = await sql.fetchval("SELECT coalesce(to_regclass('orders_0'), 'orders'::regclass)::text")
            started = time.monotonic()
            await sql.execute(f"VACUUM {table}", timeout=7200)
            say(f"{self.name}: vacuum of {table}: {time.monotonic() - started:.1f} s")

    async def _repeated(self, name: str, operation: Callable[[], Awaitable[object]], seconds: float) -> None:
        await operation()
        before, ends = cpu_seconds(self._server.pid), time.monotonic() + seconds
        while time.monotonic() < ends:
            started = time.perf_counter()
            await operation()
            self._took[name].append(time.perf_counter() - started)
        self._cpu[name] += cpu_seconds(self._server.pid) - before

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
        async with Pool.open(self.dsn, size=1, timeout=COMMAND_TIMEOUT) as pool:
            await erase_rows(pool, order_ids, operation=uuid4(), actor="bench", action="orders.erase")


async def filled(server: PostgresServer, name: str, orders: int, partitions: int) -> Measurement:
    """Fill a new database."""
    async with connected(server.dsn) as sql:
        await sql.execute(f"CREATE DATABASE {name}")
    dsn = with_database(server.dsn, name)
    await migrate(dsn, migrations())
    await set_partitions(dsn, partitions)
    started = time.monotonic()
    async with connected(dsn) as sql:
        for first in range(_FIRST, _FIRST + orders, _CHUNK):
            await sql.execute(_FILL, first, min(first + _CHUNK, _FIRST + orders) - 1, timeout=3600)
        await sql.execute("VACUUM ANALYZE orders", timeout=7200)
    say(f"{name}: {orders:,} orders after {time.monotonic() - started:.0f} s")
    return Measurement(name, dsn, server, orders)


async def compare(server: PostgresServer, given: argparse.Namespace) -> None:
    forms = [
        await filled(server, name, given.orders, partitions)
        for name, partitions in (("plain", 1), ("divided", given.partitions))
    ]
    for number in range(given.rounds):
        for form in forms if number % 2 else reversed(forms):
            await form.run(given.seconds)
    for form in forms:
        form.report()
        await form.tidy()
    if given.divide:
        plain, divided = forms
        async with connected(server.dsn) as sql:
            await sql.execute(f"DROP DATABASE {divided.name}", timeout=600)
        started, before = time.monotonic(), cpu_seconds(server.pid)
        await set_partitions(plain.dsn, given.partitions)
        took, cpu = time.monotonic() - started, cpu_seconds(server.pid) - before
        say(f"divided into {given.partitions} partitions after {took:.0f} s, CPU of the server {cpu:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=50_000_000)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15, help="for each operation in each round")
    parser.add_argument("--divide", action="store_true", help="divide the plain table at the end")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where the disk space is")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="ingest-", dir=given.directory) as folder:
        Path(folder).chmod(0o711)
        with PostgresServer(Path(folder) / "server", settings=_SETTINGS) as server:
            asyncio.run(compare(server, given))


if __name__ == "__main__":
    main()
