"""Stores batches of orders in the `orders` table, each with one statement.

The statement is its own transaction, so the rows are committed when `upsert` returns. If the process dies during it, either the whole
batch is stored or no row. Sending a batch again changes nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, Self

import asyncpg
import msgspec

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused, StoreLocked, StoreUnavailable
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import BATCH_TIMEOUT
from ingest.store.connections.pool import Pool
from ingest.store.connections.statements import Statements
from ingest.store.connections.translation import may_be_of_a_row
from ingest.store.orders.columns import arguments
from ingest.store.orders.upsert import SUPPRESSED, UPSERT, UPSERT_RECORDED, note_arguments

# The resolution of PostgreSQL's timestamps.
_MOMENT = timedelta(microseconds=1)
# A locked partition concerns only some rows.
_TABLES = "LOCK TABLE ONLY orders IN ROW EXCLUSIVE MODE; LOCK TABLE erased_orders IN ACCESS SHARE MODE"

# Tries the kind of lock that an update takes, because the row locks of other transactions are not visible.
_LOCKED = """
WITH free AS (
    SELECT order_id FROM orders WHERE source = $1 AND order_id = ANY ($2::text[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT order_id FROM orders
WHERE source = $1 AND order_id = ANY ($2::text[]) AND order_id NOT IN (SELECT order_id FROM free)
"""
# Both ends of the source's part of the primary key, because orders with the first and the last IDs may be of different kinds.
_STORED_SINCE = """
SELECT order_id FROM unnest($2::text[], $3::timestamptz[]) AS dead (order_id, at) JOIN orders USING (order_id)
WHERE source = $1 AND fetched_at > at
"""
_SOME_STORED = """
(SELECT order_id FROM orders WHERE source = $1 ORDER BY order_id DESC LIMIT ($2 + 1) / 2)
UNION
(SELECT order_id FROM orders WHERE source = $1 ORDER BY order_id LIMIT $2 / 2)
"""
_EFFECTS = {effect.value: effect for effect in Effect}


class OrderStore:
    """Stores orders of one source by natural key, guarded by version. Several stores may share one connection.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. Calling again is safe.

    Attributes:
        timeout: seconds for a batch to be stored.
    """

    timeout: ClassVar[float] = BATCH_TIMEOUT

    def __init__(self, connection: Statements, source: str = UNNAMED) -> None:
        self._connection = connection
        self._source = source

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, source: str = UNNAMED) -> AsyncIterator[Self]:
        """Open a store with its own connection."""
        async with Pool.open_for_batches(dsn, size=1, timeout=cls.timeout) as shared:
            yield cls(shared.of_source(), source)

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store a batch in one transaction, committed on return.

        Of several rows with one key, the newest is stored. The others count as unchanged, or as suppressed if the newest is.

        Returns:
            The effect of each row, in the order of `rows`.

        Raises:
            RowsRefused: PostgreSQL rejects one of the rows, and no row is stored.
            StoreTooSlow: the statement did not finish in time, but may have been committed.
            StoreLocked: another transaction has locked a row or the table, and no row is stored.
        """
        return await self._upsert(rows, self._connection.fetch)

    async def upsert_unlocked(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Like `upsert`, but do not wait for rows that other transactions have locked, or inserted without a commit yet.

        PostgreSQL cannot skip uncommitted inserts, so each costs a statement that waits for some milliseconds.

        Raises:
            StoreLocked: there are such rows. A locked table raises `TableLocked`.
        """
        return await self._upsert(rows, partial(self._connection.fetch_unlocked, _TABLES))

    async def _upsert(
        self, rows: Sequence[OrderRow], fetch: Callable[..., Awaitable[list[asyncpg.Record]]]
    ) -> list[Effect]:
        newest = _newest(rows)
        stored = [newest[key] for key in sorted(newest)]
        statement, noted = UPSERT, note_arguments(rows, stored)
        if noted:
            statement = UPSERT_RECORDED
        sent = (self._source, *arguments(stored), *noted)
        with _rows_blamed():
            try:
                records = await fetch(statement, *sent)
            except RowsRefused as error:
                if not _is_first_key(error):
                    raise
                records = await fetch(statement, *sent)
        effects = {order_id: _EFFECTS[effect] for order_id, effect in records}
        suppressed = set()
        if len(effects) < len(newest):
            suppressed = await self._suppressed([row for key, row in newest.items() if key not in effects])
            effects |= dict.fromkeys(suppressed, Effect.SUPPRESSED)
        return [
            effects.get(row.order_id, Effect.UNCHANGED)
            if newest[row.order_id] is row or row.order_id in suppressed
            else Effect.UNCHANGED
            for row in rows
        ]

    async def _suppressed(self, rows: Sequence[OrderRow]) -> set[str]:
        """Return the unreported orders that the statement should have stored."""
        try:
            records = await self._connection.fetch(SUPPRESSED, self._source, *arguments(rows))
        except StoreLocked as error:
            # A table is locked. `StoreLocked` would mean that no row was stored, which is not the case.
            raise StoreUnavailable(str(error)) from error
        return {order_id for (order_id,) in records}

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Return whether a later fetch of the same orders would update stored rows. The update is rolled back.

        Raises:
            RowsRefused: PostgreSQL rejects the rows.
            StoreLocked: another transaction has locked a row or the table.
        """
        newest = {row.order_id: row for row in sorted(rows, key=lambda row: row.age)}
        later = [msgspec.structs.replace(row, fetched_at=row.fetched_at + _MOMENT) for _, row in sorted(newest.items())]
        with _rows_blamed():
            records = await self._connection.fetch_rolled_back(UPSERT, self._source, *arguments(later))
        return any(effect != Effect.ERASED for _, effect in records)

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Return the stored orders whose rows another transaction has locked, without waiting for them.

        Raises:
            StoreUnavailable: the locks cannot be determined, for example because the whole table is locked.
        """
        records = await self._connection.fetch_unlocked(_TABLES, _LOCKED, self._source, list(order_ids))
        return {order_id for (order_id,) in records}

    async def stored_since(self, times: Mapping[str, datetime]) -> set[str]:
        """Return the orders whose stored document was requested after their time."""
        records = await self._connection.fetch(_STORED_SINCE, self._source, list(times), list(times.values()))
        return {order_id for (order_id,) in records}

    async def some_stored(self, count: int) -> list[str]:
        """Return the first and last IDs of stored orders, at most `count`."""
        records = await self._connection.fetch(_SOME_STORED, self._source, count)
        return [order_id for (order_id,) in records]


def _is_first_key(error: RowsRefused) -> bool:
    """Return whether another batch has just inserted an order, in a schema that is not contracted yet.

    Of two batches that insert an order at the same moment, the key of the previous release rejects one, because the statement only
    expects conflicts with the new key.
    """
    cause = error.__cause__
    return isinstance(cause, asyncpg.UniqueViolationError) and cause.constraint_name == "orders_pkey"


@contextmanager
def _rows_blamed() -> Iterator[None]:
    """Raise `RowsRefused` for an error that a row of the statement may have caused."""
    try:
        yield
    except StoreUnavailable as error:
        if may_be_of_a_row(error):
            raise RowsRefused(str(error)) from error
        raise


def _newest(rows: Sequence[OrderRow]) -> dict[str, OrderRow]:
    """Return the newest row of each order, and the first of equal rows."""
    newest: dict[str, OrderRow] = {}
    for row in rows:
        other = newest.get(row.order_id)
        if other is None or other.age < row.age:
            newest[row.order_id] = row
    return newest
