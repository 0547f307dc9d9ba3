"""Reads stored orders as JSON values, by ID or page by page.

Pages follow the primary key, or the time of the last change if the filter limits it. Without the indexes of
`ingest.store.orders.search_indexes`, a filter that matches few orders may have to scan all rows, which a time limit ends.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from ingest.domain.orders.order_filter import OrderFilter, OrderPlace, OrderPosition
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.pool import Pool
from ingest.store.orders.columns import COLUMNS, readable
from ingest.store.orders.order_conditions import conditions_of

# Without the raw document, which may contain megabytes of customer data, and without the source,
# which the caller already has.
_SHOWN = [column.name for column in COLUMNS if column.name not in {"document", "source"}]
# Pages omit columns that may be large.
_LISTED = [name for name in _SHOWN if name not in {"lines", "attributes"}]
# Read as text, so that JSON is passed on unchanged and amounts keep every digit.
_AS_TEXT = {"lines", "attributes", "total"}
_JSON = {"lines", "attributes"}
# Columns whose values do not come from the document.
_OF_THE_ROW = {"version", "fetched_at", "attempts", "enqueued_at", "ingested_at"}


def _columns(names: Collection[str]) -> str:
    return ", ".join(f"o.{name}::text" if name in _AS_TEXT else readable(name, "o.") for name in names)


_FIND = """
SELECT wanted.order_id AS wanted, e.erased_at, {columns}
FROM unnest($2::text[]) AS wanted (order_id)
LEFT JOIN orders AS o ON o.source = $1 AND o.order_id = wanted.order_id
LEFT JOIN erased_orders AS e ON e.source = $1 AND e.order_id = wanted.order_id
"""
_FIND_WHOLE = _FIND.format(columns=_columns(_SHOWN))
# PostgreSQL compresses to 1/255 at most, so that the text of the first has at most about 500 kB. The text of others is measured, because
# real orders compress to a few kB.
_IS_SMALL = """
pg_column_size(o.lines) + pg_column_size(o.attributes) <= 2000
OR length(o.lines::text) + length(o.attributes::text) <= 100000"""
_FIND_SMALL = _FIND.format(
    columns=", ".join(
        f"CASE WHEN {_IS_SMALL} THEN o.{name}::text END AS {name}" if name in _JSON else _columns([name])
        for name in _SHOWN
    )
)


# Rows that PostgreSQL sorts in a fraction of a second.
_IS_SORTED = """
SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('orders_search_stored')), false)
    OR (SELECT reltuples < 100000 FROM pg_class WHERE oid = to_regclass('orders'))"""
_DOCUMENT = "SELECT document::text FROM orders WHERE source = $1 AND order_id = $2"


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state of an order in the database.

    Attributes:
        row: its columns as JSON values, or None if it is not stored.
        erased_at: time of erasure, or None.
    """

    row: dict[str, Any] | None
    erased_at: datetime | None


class OrderReader:
    """Reads one source's rows of `orders` and `erased_orders`.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now.
    """

    def __init__(self, pool: Pool, source: str = UNNAMED) -> None:
        self._pool = pool
        self._source = source

    async def find(self, order_ids: Collection[str]) -> dict[str, StoredState]:
        """Return the state of each of these orders."""
        records = await self._pool.fetch(_FIND_WHOLE, self._source, list(order_ids))
        return {record["wanted"]: _state(record) for record in records}

    async def find_small(self, order_ids: Collection[str]) -> dict[str, StoredState | None]:
        """Return the state of each of these orders, or None if its lines and attributes are large, which are not read."""
        records = await self._pool.fetch(_FIND_SMALL, self._source, list(order_ids))
        return {
            record["wanted"]: None if record["order_id"] is not None and record["lines"] is None else _state(record)
            for record in records
        }

    async def document(self, order_id: str) -> bytes | None:
        """Return the raw document of an order as JSON, or None if none is stored."""
        records = await self._pool.fetch(_DOCUMENT, self._source, order_id)
        return records[0]["document"].encode() if records and records[0]["document"] is not None else None

    async def page(self, selection: OrderFilter, after: OrderPosition, limit: int) -> list[dict[str, Any]]:
        """Return the next matching orders after this position, without lines and attributes.

        They are sorted by ID, or by the time of their last change if the filter `is_by_time`.

        Raises:
            StoreTooSlow: too many rows had to be examined.
        """
        where, order, arguments = conditions_of(selection, self._source, after)
        statement = f"""
            SELECT {_columns(_LISTED)} FROM orders AS o WHERE {where}
            ORDER BY {order} LIMIT {limit:d}"""  # noqa: S608  our own conditions
        return [_as_json(record, _LISTED) for record in await self._pool.fetch(statement, *arguments)]

    async def ids(self, selection: OrderFilter, after: OrderPosition, limit: int) -> list[OrderPosition]:
        """Return the positions of the next matching orders, as `page` does."""
        where, order, arguments = conditions_of(selection, self._source, after)
        statement = f"""
            SELECT o.order_id, o.ingested_at FROM orders AS o WHERE {where}
            ORDER BY {order} LIMIT {limit:d}"""  # noqa: S608  our own conditions
        return [
            OrderPosition(order_id, ingested_at.isoformat())
            for order_id, ingested_at in await self._pool.fetch(statement, *arguments)
        ]

    async def count(self, selection: OrderFilter) -> int:
        """Count the matching orders.

        Raises:
            StoreTooSlow: too many rows had to be examined.
        """
        where, _, arguments = conditions_of(selection, self._source, OrderPosition())
        [[count]] = await self._pool.fetch(f"SELECT count(*) FROM orders AS o WHERE {where}", *arguments)  # noqa: S608
        return int(count)


async def newest_orders(
    pool: Pool, sources: Sequence[str], selection: OrderFilter, before: OrderPlace | None, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return the matching orders of these sources before a place, the last changed first, and whether they are sorted so.

    A large table without the index for times is sorted by ID, with the highest first, because sorting by time would take too long.

    Raises:
        StoreTooSlow: too many rows had to be examined.
    """
    [[is_by_time]] = await pool.fetch(_IS_SORTED)
    key = OrderPlace._fields if is_by_time else OrderPlace._fields[1:]
    where, _, arguments = conditions_of(selection, "", OrderPosition())
    where = where.replace("o.source = $1", "o.source = s.source")
    arguments[0] = [*sources]
    if before is not None:
        where += f" AND ({', '.join(f'o.{name}' for name in key)}) < ({', '.join(f'${len(arguments) + 1 + n}' for n in range(len(key)))})"
        arguments += before[-len(key) :]
    last = f"ORDER BY {', '.join(f'o.{name} DESC' for name in key)} LIMIT {limit:d}"
    statement = f"""
        SELECT o.* FROM unnest($1::text[]) AS s (source)
        CROSS JOIN LATERAL (SELECT o.source, {_columns(_LISTED)} FROM orders AS o WHERE {where} {last}) AS o {last}"""  # noqa: S608  our own conditions
    return [
        {"source": row["source"], **_as_json(row, _LISTED)} for row in await pool.fetch(statement, *arguments)
    ], is_by_time


def _state(record: asyncpg.Record) -> StoredState:
    return StoredState(None if record["order_id"] is None else _as_json(record, _SHOWN), record["erased_at"])


def _as_json(record: asyncpg.Record, names: Collection[str]) -> dict[str, Any]:
    """Split a record into the values from the document, in `order`, and the rest, in `row`."""
    order = {
        name: msgspec.Raw(record[name].encode()) if name in _JSON else record[name]
        for name in names
        if name not in _OF_THE_ROW
    }
    order["id"] = order.pop("order_id")
    row = {name: record[name] for name in names if name in _OF_THE_ROW}
    return {"order": order, "row": row}
