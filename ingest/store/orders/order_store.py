"""Stores batches of orders in the `orders` table, each with one statement.

The statement is its own transaction, so the rows are committed when `upsert` returns. If the process dies during it, either the whole
batch is stored or no row. Sending a batch again changes nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import ClassVar, Self

import asyncpg
import msgspec

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused, StoreLocked, StoreUnavailable
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.source_name import UNNAMED
from ingest.store.connection import BATCH_TIMEOUT, Reconnecting, is_behind_pooler
from ingest.store.orders.columns import COLUMNS, MADE, Update, arguments, named, updated
from ingest.store.statements import Statements
from ingest.store.translation import may_be_of_a_row

# Other batches hold a lock for milliseconds. A transaction that holds one for 2 s (a share of the timeout) may last for hours.
_LOCK_SHARE = 2 / 15
# The resolution of PostgreSQL's timestamps.
_MOMENT = timedelta(microseconds=1)
_TABLES = "LOCK TABLE orders IN ROW EXCLUSIVE MODE; LOCK TABLE erased_orders IN ACCESS SHARE MODE"

_CONTENT = [column for column in COLUMNS if column.is_content]
_ALWAYS = updated(Update.ALWAYS)
_IF_DIFFERS = updated(Update.IF_CONTENT_DIFFERS)
_CHANGED_AT = "statement_timestamp() + interval '1 microsecond'"
_CHANGED = named("CASE WHEN differs THEN excluded.{} ELSE o.{} END", _IF_DIFFERS)

# A row is updated only by a newer version. A newer version with the same content is not a change, but it advances the row's version and
# fetched_at. Otherwise a late document from in between would count as newer than the confirmed content. No other column is written
# then: no index contains these columns, so the update stays in its page if possible, and long lines are not rewritten. `ingested_at`
# is the statement's time, which distinguishes a change from a confirmation, and a microsecond later in a changed row, because `xmax`
# cannot be read from a partitioned table. Rows are locked in the order of their keys, so that batches do not deadlock.
_UPSERT = f"""
WITH made AS (
    {MADE}
), erased AS (
    SELECT order_id FROM erased_orders WHERE source = $1 AND order_id = ANY ($2::text[])
), written AS (
    INSERT INTO orders AS o
           ({named("{}")})
    SELECT {named("{}")}
    FROM made
    WHERE order_id NOT IN (SELECT order_id FROM erased)
    ORDER BY order_id COLLATE "C"
    ON CONFLICT (source, order_id) DO UPDATE
    SET {named("{} = excluded.{}", _ALWAYS)},
        ({named("{}", _IF_DIFFERS)}) = (
            SELECT {_CHANGED.replace("excluded.ingested_at", _CHANGED_AT)}
            FROM (SELECT ({named("o.{}", _CONTENT)})
                         IS DISTINCT FROM
                         ({named("excluded.{}", _CONTENT)}) AS differs OFFSET 0) AS content)
    WHERE (o.version, o.fetched_at) < (excluded.version, excluded.fetched_at)
    RETURNING order_id, CASE ingested_at WHEN statement_timestamp() THEN 'inserted'
                                         WHEN {_CHANGED_AT} THEN 'changed'
                                         ELSE 'unchanged' END AS effect
)
SELECT order_id, effect FROM written
UNION ALL
SELECT order_id, 'erased' FROM erased
"""  # noqa: S608  names of our own columns; all values are parameters

# Finds rows that a trigger has prevented, after the commit of a statement that did not report them. A row is also not reported if an
# equal or newer version is stored, perhaps by another worker.
_SUPPRESSED = f"""
WITH made AS (
    {MADE}
)
SELECT order_id
FROM made LEFT JOIN orders AS o USING (source, order_id)
WHERE NOT EXISTS (SELECT FROM erased_orders AS erased WHERE erased.source = $1 AND erased.order_id = made.order_id)
  AND (o.version IS NULL
       OR (o.version, o.fetched_at) < (made.version, made.fetched_at)
          AND ({named("o.{}", _CONTENT)}) IS DISTINCT FROM ({named("made.{}", _CONTENT)}))
"""  # noqa: S608  names of our own columns; all values are parameters

# Tries the kind of lock that an update takes, because the row locks of other transactions are not visible.
_LOCKED = """
WITH free AS (
    SELECT order_id FROM orders WHERE source = $1 AND order_id = ANY ($2::text[]) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT order_id FROM orders
WHERE source = $1 AND order_id = ANY ($2::text[]) AND order_id NOT IN (SELECT order_id FROM free)
"""
# Both ends of the source's part of the primary key, because orders with the first and the last IDs may be of different kinds.
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
        connection = Reconnecting(
            dsn, pooled=await is_behind_pooler(dsn), timeout=cls.timeout, lock_timeout=cls.timeout * _LOCK_SHARE
        )
        with closing(connection):
            yield cls(connection, source)

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
            StoreLocked: there are such rows. A locked table raises another `StoreUnavailable`.
        """
        return await self._upsert(rows, partial(self._connection.fetch_unlocked, _TABLES))

    async def _upsert(
        self, rows: Sequence[OrderRow], fetch: Callable[..., Awaitable[list[asyncpg.Record]]]
    ) -> list[Effect]:
        newest = _newest(rows)
        sent = (self._source, *arguments([newest[key] for key in sorted(newest)]))
        with _rows_blamed():
            try:
                records = await fetch(_UPSERT, *sent)
            except RowsRefused as error:
                if not _is_first_key(error):
                    raise
                records = await fetch(_UPSERT, *sent)
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
            records = await self._connection.fetch(_SUPPRESSED, self._source, *arguments(rows))
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
            records = await self._connection.fetch_rolled_back(_UPSERT, self._source, *arguments(later))
        return any(effect != Effect.ERASED for _, effect in records)

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Return the stored orders whose rows another transaction has locked, without waiting for them.

        Raises:
            StoreUnavailable: the locks cannot be determined, for example because the whole table is locked.
        """
        records = await self._connection.fetch_unlocked(_TABLES, _LOCKED, self._source, list(order_ids))
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


async def plan_upsert(connection: asyncpg.Connection) -> None:
    """Plan the statement that stores a batch, without running it, to check tables, columns and privileges.

    Raises:
        asyncpg.PostgresError: the statement cannot be run.
    """
    await connection.fetch(f"EXPLAIN {_UPSERT}", UNNAMED, *arguments([]))
