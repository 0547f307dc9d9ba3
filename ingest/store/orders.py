"""The `orders` table: one statement stores a batch.

The statement is its own transaction, so when `upsert` returns, the rows are committed; when the process dies in it,
either all of the batch is there or nothing, and sending it again changes nothing.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, ClassVar, Self

from ingest.domain.delivery import Effect, OrderRow
from ingest.store.connection import BATCH_TIMEOUT, Reconnecting, is_behind_pooler

# A row is touched only by a newer version. What is newer and has the same content is no change, but it moves the row's version and
# fetched_at on: else a late document from in between would count as newer than what has been confirmed since. Nothing else is
# written then: no index has these columns, so the update stays in its page where that has room, and long lines stay where they
# are. `ingested_at` is the statement's time, by which a change is told from a mere confirmation. Rows are locked in the order of
# their keys, so that two batches never wait for each other in a circle. `xmax` is 0 in a row that was inserted rather than updated.
_UPSERT = """
WITH incoming AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[],
                $8::integer[], $9::text[], $10::text[], $11::timestamptz[], $12::integer[], $13::float8[])
        AS t (order_id, status, currency, customer_id, country, placed_at, updated_at,
              line_count, total, lines, fetched_at, attempts, enqueued_at)
), erased AS (
    SELECT order_id FROM erased_orders WHERE order_id = ANY ($1::text[])
), written AS (
    INSERT INTO orders AS o
           (order_id, status, currency, customer_id, country, placed_at, updated_at,
            line_count, total, lines, version, fetched_at, attempts, enqueued_at, ingested_at)
    SELECT order_id, status, currency, customer_id, country, placed_at, updated_at,
           line_count, total::numeric, lines::jsonb, coalesce(updated_at, fetched_at), fetched_at, attempts,
           to_timestamp(enqueued_at), statement_timestamp()
    FROM incoming
    WHERE order_id NOT IN (SELECT order_id FROM erased)
    ORDER BY order_id COLLATE "C"
    ON CONFLICT (order_id) DO UPDATE
    SET status = excluded.status, currency = excluded.currency, customer_id = excluded.customer_id,
        country = excluded.country, placed_at = excluded.placed_at, updated_at = excluded.updated_at,
        line_count = excluded.line_count, version = excluded.version, fetched_at = excluded.fetched_at,
        (total, lines, attempts, enqueued_at, ingested_at) = (
            SELECT CASE WHEN differs THEN excluded.total ELSE o.total END,
                   CASE WHEN differs THEN excluded.lines ELSE o.lines END,
                   CASE WHEN differs THEN excluded.attempts ELSE o.attempts END,
                   CASE WHEN differs THEN excluded.enqueued_at ELSE o.enqueued_at END,
                   CASE WHEN differs THEN excluded.ingested_at ELSE o.ingested_at END
            FROM (SELECT (o.status, o.currency, o.customer_id, o.country, o.placed_at, o.updated_at, o.lines)
                         IS DISTINCT FROM
                         (excluded.status, excluded.currency, excluded.customer_id, excluded.country,
                          excluded.placed_at, excluded.updated_at, excluded.lines) AS differs OFFSET 0) AS content)
    WHERE (o.version, o.fetched_at) < (excluded.version, excluded.fetched_at)
    RETURNING order_id, CASE WHEN xmax = 0 THEN 'inserted'
                             WHEN ingested_at = statement_timestamp() THEN 'changed'
                             ELSE 'unchanged' END AS effect
)
SELECT order_id, effect FROM written
UNION ALL
SELECT order_id, 'erased' FROM erased
"""


_EFFECTS = {effect.value: effect for effect in Effect}


class OrderStore:
    """Stores orders by natural key, guarded by version.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now; calling again is safe.

    Attributes:
        timeout: seconds in which a batch has to be stored.
    """

    timeout: ClassVar[float] = BATCH_TIMEOUT

    def __init__(self, connection: Reconnecting) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """A store with its own connection."""
        connection = Reconnecting(dsn, pooled=await is_behind_pooler(dsn), timeout=cls.timeout)
        try:
            yield cls(connection)
        finally:
            connection.hang_up()

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store a batch in one transaction, committed on return.

        Of several rows with one key the newest is stored; the others count as unchanged.

        Returns:
            What happened to each row, in the order of `rows`.

        Raises:
            RowsRefused: if PostgreSQL refuses one of the rows; nothing is stored.
            StoreTooSlow: if it was not done in time; it may have been stored all the same.
        """
        newest: dict[str, OrderRow] = {}
        for row in rows:
            other = newest.get(row.order.id)
            if other is None or _age(other) < _age(row):
                newest[row.order.id] = row
        columns = _columns([newest[key] for key in sorted(newest)])
        records = await self._connection.fetch(_UPSERT, *columns)
        effects = {order_id: _EFFECTS[effect] for order_id, effect in records}
        unchanged = Effect.UNCHANGED
        return [effects.get(row.order.id, unchanged) if newest[row.order.id] is row else unchanged for row in rows]


def _age(row: OrderRow) -> tuple[datetime, datetime]:
    return row.order.updated_at or row.fetched_at, row.fetched_at


def _columns(rows: Sequence[OrderRow]) -> tuple[list[Any], ...]:
    orders = [row.order for row in rows]
    return (
        [order.id for order in orders],
        [order.status for order in orders],
        [order.currency for order in orders],
        [order.customer_id for order in orders],
        [order.country for order in orders],
        [order.placed_at for order in orders],
        [order.updated_at for order in orders],
        [len(order.lines) for order in orders],
        [str(order.total) for order in orders],  # as text: asyncpg takes a Decimal apart in Python
        [order.lines_json().decode() for order in orders],
        [row.fetched_at for row in rows],
        [row.attempts for row in rows],
        [row.enqueued_at for row in rows],
    )
