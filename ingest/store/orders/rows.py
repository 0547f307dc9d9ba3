"""Reads stored orders in bulk, or a summary of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Self

import asyncpg

from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.orders.comparison import StoredOrder
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated
from ingest.store.orders.columns import readable
from ingest.store.orders.listed_changes import VERSION, fetched_ahead
from ingest.store.schema import refuse_closed_schema

_PAGE = 1000
# The same as a worker's.
_LOCK_TIMEOUT = "2s"
_FACTS = f"""
SELECT order_id, {VERSION}, coalesce(attributes ->> 'total_difference', ''), total, fetched_at
FROM orders AS o WHERE source = $1 AND order_id = ANY ($2)
"""  # noqa: S608  our own expression
# There is no index on the time, so that each statement examines a limited number of rows.
_CHANGED = """
SELECT max(order_id), array_agg(order_id ORDER BY order_id) FILTER (WHERE updated_at BETWEEN $3 AND $4)
FROM (SELECT order_id, updated_at FROM orders WHERE source = $1 AND order_id > $2 ORDER BY order_id LIMIT 10000) AS page
"""
_CONTENT = ", ".join(readable(field.name) for field in fields(StoredOrder))


class StoredFacts(NamedTuple):
    """The facts about a stored order that a shop's list is compared with.

    Attributes:
        version: time of its last change by the shop's clock.
        total_difference: the part of the total that its lines do not explain. Empty if they do.
        total: the sum of its lines, which is the total of its document.
        fetched_at: when the request for its document began, by our clock.
    """

    order_id: str
    version: datetime
    total_difference: str
    total: Decimal
    fetched_at: datetime


class Rows:
    """The stored orders of one source. Each query sees all previous commits.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now.
    """

    def __init__(self, connection: asyncpg.Connection, source: str = UNNAMED) -> None:
        self._connection = connection
        self._source = source

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, source: str = UNNAMED) -> AsyncIterator[Self]:
        """Open with its own connection."""
        async with connect(dsn) as connection:
            yield cls(connection, source)

    async def present(self, order_ids: Sequence[str]) -> set[str]:
        """Return the orders that have a row."""
        found = await self._fetch("SELECT order_id FROM orders WHERE source = $1 AND order_id = ANY ($2)", order_ids)
        return {row["order_id"] for row in found}

    async def erased(self, order_ids: Sequence[str]) -> set[str]:
        """Return the orders that were erased."""
        found = await self._fetch(
            "SELECT order_id FROM erased_orders WHERE source = $1 AND order_id = ANY ($2)", order_ids
        )
        return {row["order_id"] for row in found}

    async def content(self, order_ids: Sequence[str]) -> dict[str, StoredOrder]:
        """Return the rows of these orders. Orders without a row are omitted."""
        query = f"SELECT {_CONTENT} FROM orders WHERE source = $1 AND order_id = ANY ($2)"  # noqa: S608  names of our own columns
        return {row["order_id"]: StoredOrder(**row) for row in await self._fetch(query, order_ids)}

    async def all_ids(self) -> AsyncIterator[list[str]]:
        """Return the IDs of all rows, sorted, page by page."""
        page = [""]
        query = f"SELECT order_id FROM orders WHERE source = $1 AND order_id > $2 ORDER BY order_id LIMIT {_PAGE}"  # noqa: S608
        while page := [row["order_id"] for row in await self._fetch(query, page[-1])]:
            yield page

    async def facts(self, order_ids: Sequence[str], clock: ListClock) -> list[StoredFacts]:
        """Return the facts about these orders that a shop's list is compared with. Orders without a row are omitted."""
        return [StoredFacts(*row) for row in await self._fetch(_FACTS, order_ids, fetched_ahead(clock))]

    async def changed_ids(self, since: datetime, until: datetime) -> AsyncIterator[list[str]]:
        """Return the IDs of the rows whose order changed within a period, sorted, page by page. A page may be empty."""
        last: str | None = ""
        while last is not None:
            [[last, ids]] = await self._fetch(_CHANGED, last, since, until)
            yield ids or []

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        # A pooler may run each statement in another server process. A transaction keeps prepare and execute together.
        with translated():
            async with self._connection.transaction(readonly=True):
                return list(await self._connection.fetch(query, self._source, *arguments))


@dataclass(frozen=True, slots=True)
class StoredOrders:
    """A summary of the rows of one source.

    Attributes:
        last_ingested_at: time of the last change of a row in UTC.
    """

    stored: int
    last_ingested_at: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    """A summary of the orders table.

    Attributes:
        last_ingested_at: time of the last change of a row in UTC, or None without rows.
        is_migrated: whether our tables exist in the database.
        by_source: the sources that have rows.
    """

    stored: int
    last_ingested_at: datetime | None
    is_migrated: bool = True
    by_source: Mapping[str, StoredOrders] = field(default_factory=dict)


async def overview(dsn: str) -> Overview:
    """Count the orders of all sources, 0 in a database without our tables.

    Raises:
        StoreUnavailable: PostgreSQL cannot be reached, or another transaction has locked the table.
        SchemaMismatch: our role may not use the tables' schema.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction(readonly=True):
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                if not await connection.fetchval("SELECT to_regclass('orders') IS NOT NULL"):
                    await refuse_closed_schema(connection)
                    return Overview(0, None, is_migrated=False)
                found = await connection.fetch("SELECT source, count(*), max(ingested_at) FROM orders GROUP BY source")
    by_source = {
        source: StoredOrders(stored, last.astimezone(UTC)) for source, stored, last in sorted(map(tuple, found))
    }
    return Overview(
        sum(orders.stored for orders in by_source.values()),
        max((orders.last_ingested_at for orders in by_source.values()), default=None),
        by_source=by_source,
    )
