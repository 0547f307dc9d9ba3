"""Reads stored documents page by page, and replaces the rows that were made from them.

A row is replaced only if it is still from the same fetch, because a newer row comes from a newer document. Rows are locked in the order
of their keys, the same as in batches of workers.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import StoreTooSlow
from ingest.domain.orders.field_differences import FieldDifference, field_differences
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import COMMAND_TIMEOUT, Reconnecting, is_behind_pooler
from ingest.store.orders.columns import COLUMNS, MADE, arguments, named
from ingest.store.orders.order_conditions import conditions_of
from ingest.store.orders.order_store import OrderStore

_PAGE = 200
# The longest wait of workers for the rows of a page is the same.
_LOCK_TIMEOUT = 2.0
# Size of the stored documents, which are compressed to about a third.
_PAGE_BYTES = 2 * 1024 * 1024

# Columns whose values do not come from the document.
_KEPT = {"source", "order_id", "fetched_at", "attempts", "enqueued_at", "document"}
_REPLACED = [column for column in COLUMNS if column.name not in _KEPT]
_CONTENT = [column for column in COLUMNS if column.is_content and column.name not in _KEPT]

_COMPARED = f"""
WITH made AS (
    {MADE}
), compared AS (
    SELECT order_id, o.fetched_at = made.fetched_at AS is_same,
           ({named("o.{}", _CONTENT)}) IS DISTINCT FROM ({named("made.{}", _CONTENT)}) AS differs
    FROM orders AS o JOIN made USING (source, order_id)
    ORDER BY order_id %s
)"""  # noqa: S608  names of our own columns, and all values are parameters
_OUTCOMES = """
SELECT order_id, CASE WHEN NOT is_same THEN 'newer' WHEN differs THEN 'changed' ELSE 'unchanged' END FROM compared
"""
_COMPARE = _COMPARED % "" + _OUTCOMES
_REPLACE = f"""{_COMPARED % "FOR UPDATE OF o"}, replaced AS (
    UPDATE orders AS o
    SET ({named("{}", _REPLACED)}) = ROW ({named("made.{}", _REPLACED)})
    FROM made JOIN compared USING (order_id)
    WHERE o.source = $1 AND o.order_id = made.order_id AND o.fetched_at = made.fetched_at AND compared.differs
    RETURNING o.order_id
)
SELECT order_id, CASE WHEN NOT is_same THEN 'newer' WHEN NOT differs THEN 'unchanged'
                      WHEN order_id IN (SELECT order_id FROM replaced) THEN 'changed' ELSE 'suppressed' END
FROM compared
"""  # noqa: S608


# The stored and the new value of each column that differs, for rows that have not been stored again since.
_DIFFERENCES = f"""
WITH made AS (
    {MADE}
)
SELECT order_id, {named("CASE WHEN o.{} IS DISTINCT FROM made.{} THEN ARRAY[o.{}::text, made.{}::text] END AS {}", _CONTENT)}
FROM orders AS o JOIN made USING (source, order_id)
WHERE ({named("o.{}", _CONTENT)}) IS DISTINCT FROM ({named("made.{}", _CONTENT)})
"""  # noqa: S608


class Remapped(StrEnum):
    """The result for a row, or the expected result in a comparison. Suppressed: a trigger has prevented the update without an error."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    NEWER = "newer"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """The document of one row, with the values that are not in the document.

    Attributes:
        position: of the row in the list of selected rows.
    """

    order_id: str
    document: bytes
    fetched_at: datetime
    attempts: int
    enqueued_at: float
    position: OrderPosition


@dataclass(frozen=True, slots=True)
class DocumentSelection:
    """A filter for rows with documents. A row must match all given values.

    Attributes:
        orders: the orders.
        since: fetched at this time or later.
        until: fetched before this time.
    """

    orders: OrderFilter = field(default_factory=OrderFilter)
    since: datetime | None = None
    until: datetime | None = None


class Documents:
    """The rows of one source with a document.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now, and `StoreLocked` when another transaction has locked a
    row or the table for some seconds. Calling again is safe.
    """

    def __init__(self, connection: Reconnecting, selection: DocumentSelection, source: str = UNNAMED) -> None:
        self._connection = connection
        self._source = source
        self._store = OrderStore(connection, source)
        self._selection = selection

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, selection: DocumentSelection, source: str = UNNAMED) -> AsyncIterator[Self]:
        """Open with its own connection."""
        connection = Reconnecting(
            dsn, pooled=await is_behind_pooler(dsn), timeout=COMMAND_TIMEOUT, lock_timeout=_LOCK_TIMEOUT
        )
        with closing(connection):
            yield cls(connection, selection, source)

    async def count(self, after: OrderPosition) -> int | None:
        """Count the rows after this position. None if counting takes too long."""
        where, _, arguments = self._conditions(after)
        query = f"SELECT count(*) FROM orders AS o WHERE {where}"  # noqa: S608  our own conditions
        try:
            [[count]] = await self._connection.fetch(query, *arguments)
        except StoreTooSlow:  # or locked
            return None
        return int(count)

    async def page(self, after: OrderPosition) -> list[StoredDocument]:
        """Return the next rows after this position, sorted by ID, or by time if the filter `is_by_time`. Empty only at the end."""
        where, order, arguments = self._conditions(after)
        query = f"""
            SELECT order_id, document::text, fetched_at, attempts, extract(epoch FROM enqueued_at)::float8, ingested_at
            FROM (
                SELECT *, sum(pg_column_size(document)) OVER (ORDER BY number) AS size
                FROM (
                    SELECT order_id, document, fetched_at, attempts, enqueued_at, ingested_at,
                           row_number() OVER (ORDER BY {order}) AS number
                    FROM orders AS o WHERE {where} ORDER BY {order} LIMIT {_PAGE}
                ) AS page
            ) AS sized
            WHERE number = 1 OR size <= {_PAGE_BYTES}
            ORDER BY number"""  # noqa: S608  our own conditions
        is_by_time = self._selection.orders.is_by_time
        return [
            StoredDocument(
                order_id,
                document.encode(),
                fetched_at,
                attempts,
                enqueued_at,
                OrderPosition(order_id, ingested_at.isoformat() if is_by_time else None),
            )
            for order_id, document, fetched_at, attempts, enqueued_at, ingested_at in await self._connection.fetch(
                query, *arguments
            )
        ]

    def _conditions(self, after: OrderPosition) -> tuple[str, str, list[Any]]:
        where, order, arguments = conditions_of(self._selection.orders, self._source, after)
        where += " AND o.document IS NOT NULL"
        for condition, value in (("fetched_at >= ", self._selection.since), ("fetched_at < ", self._selection.until)):
            if value is not None:
                arguments.append(value)
                where += f" AND o.{condition}${len(arguments)}"
        return where, order, arguments

    async def present(self, order_ids: Sequence[str]) -> set[str]:
        """Return the orders that have a row."""
        if not order_ids:
            return set()
        query = "SELECT order_id FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])"
        return {order_id for [order_id] in await self._connection.fetch(query, self._source, order_ids)}

    async def compare(self, rows: Sequence[OrderRow]) -> dict[str, Remapped]:
        """Return the effect of replacing these rows, without changes. Missing rows are omitted."""
        return await self._made(_COMPARE, rows)

    async def differences(self, rows: Sequence[OrderRow]) -> dict[str, list[FieldDifference]]:
        """Return the fields in which stored rows differ from these, by order. Equal and missing rows are omitted."""
        found = await self._connection.fetch(_DIFFERENCES, self._source, *arguments(rows))
        return {
            order_id: field_differences(
                {
                    column.name: (value[0], value[1])
                    for column, value in zip(_CONTENT, values, strict=True)
                    if value is not None
                }
            )
            for order_id, *values in found
        }

    async def replace(self, rows: Sequence[OrderRow]) -> dict[str, Remapped]:
        """Replace rows of the same fetch, committed on return. Missing rows are omitted.

        Raises:
            RowsRefused: PostgreSQL rejects one of the rows, and no row is replaced.
        """
        return await self._made(_REPLACE, rows)

    async def insert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store orders that documents yield for the first time. Returns the effect of each.

        Raises:
            RowsRefused: PostgreSQL rejects one of the rows, and no row is stored.
        """
        return await self._store.upsert(rows)

    async def _made(self, statement: str, rows: Sequence[OrderRow]) -> dict[str, Remapped]:
        found = await self._connection.fetch(statement, self._source, *arguments(rows))
        return {order_id: Remapped(outcome) for order_id, outcome in found}
