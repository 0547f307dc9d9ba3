"""The `orders` table: one statement stores a batch.

The statement is its own transaction, so when `upsert` returns, the rows are committed; when the process dies in
it, either the whole batch is stored or nothing, and sending it again changes nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from typing import Any, ClassVar, Self

import asyncpg
import msgspec

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused, StoreLocked, StoreUnavailable
from ingest.domain.orders.order_row import OrderRow
from ingest.store.connection import BATCH_TIMEOUT, Reconnecting, is_behind_pooler
from ingest.store.orders.columns import (
    COLUMNS,
    EXPRESSIONS,
    SENT,
    Column,
    Update,
    arguments,
    batch,
    incoming,
    named,
    updated,
)
from ingest.store.translation import may_be_of_a_row

# The table may be locked.
_PREPARE_TIMEOUT = 2.0
# Other batches hold a lock for milliseconds. A transaction that holds one for 2 s (a share of the timeout) may last for hours.
_LOCK_SHARE = 2 / 15
# PostgreSQL's times are as exact as this.
_MOMENT = timedelta(microseconds=1)
_TABLES = "LOCK TABLE orders IN ROW EXCLUSIVE MODE; LOCK TABLE erased_orders IN ACCESS SHARE MODE"

_CONTENT = [column for column in COLUMNS if column.is_content]
_ALWAYS = updated(Update.ALWAYS)
_IF_DIFFERS = updated(Update.IF_CONTENT_DIFFERS)

# A row is updated only by a newer version. A newer version with the same content is no change, but it moves the row's version and
# fetched_at on: otherwise a late document from in between would count as newer than what has been confirmed since. Nothing else is
# written then: no index has these columns, so the update stays in its page where that has room, and long lines stay where they
# are. `ingested_at` is the statement's time, which tells a change from a confirmation. Rows are locked in the order of
# their keys, so that two batches never wait for each other in a circle. `xmax` is 0 in a row that was inserted rather than updated.
_UPSERT = f"""
WITH incoming AS (
    %s
), erased AS (
    SELECT order_id FROM erased_orders WHERE order_id = ANY ($1::text[])
), written AS (
    INSERT INTO orders AS o
           ({named("{}")})
    SELECT {EXPRESSIONS}
    FROM incoming
    WHERE order_id NOT IN (SELECT order_id FROM erased)
    ORDER BY order_id COLLATE "C"
    ON CONFLICT (order_id) DO UPDATE
    SET {named("{} = excluded.{}", _ALWAYS)},
        ({named("{}", _IF_DIFFERS)}) = (
            SELECT {named("CASE WHEN differs THEN excluded.{} ELSE o.{} END", _IF_DIFFERS)}
            FROM (SELECT ({named("o.{}", _CONTENT)})
                         IS DISTINCT FROM
                         ({named("excluded.{}", _CONTENT)}) AS differs OFFSET 0) AS content)
    WHERE (o.version, o.fetched_at) < (excluded.version, excluded.fetched_at)
    RETURNING order_id, CASE WHEN xmax = 0 THEN 'inserted'
                             WHEN ingested_at = statement_timestamp() THEN 'changed'
                             ELSE 'unchanged' END AS effect
)
SELECT order_id, effect FROM written
UNION ALL
SELECT order_id, 'erased' FROM erased
"""  # noqa: S608  names of our own columns; all values are parameters


@cache
def _upsert(sent: tuple[Column, ...]) -> str:
    """The statement for batches with these columns."""
    return _UPSERT % incoming(sent)


def _statement(rows: Sequence[OrderRow]) -> tuple[Any, ...]:
    """The statement that stores rows, and its arguments."""
    sent, values = batch(rows)
    return _upsert(sent), *values


# Which of these rows a trigger has kept out, asked after the commit of the statement that has not reported them: a row may as well be
# missing in its reply because an equal or newer version is stored, which others may have stored meanwhile.
_SUPPRESSED = f"""
WITH incoming AS (
    %s
), made AS (
    SELECT {", ".join(f"{column.expression or column.name} AS {column.name}" for column in COLUMNS)} FROM incoming
)
SELECT order_id
FROM made LEFT JOIN orders AS o USING (order_id)
WHERE NOT EXISTS (SELECT FROM erased_orders AS erased WHERE erased.order_id = made.order_id)
  AND (o.version IS NULL
       OR (o.version, o.fetched_at) < (made.version, made.fetched_at)
          AND ({named("o.{}", _CONTENT)}) IS DISTINCT FROM ({named("made.{}", _CONTENT)}))
"""  # noqa: S608  names of our own columns; all values are parameters

# An update takes this kind of lock. The lock that a transaction has is not seen otherwise.
_LOCKED = """
WITH free AS (SELECT order_id FROM orders WHERE order_id = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT order_id FROM orders WHERE order_id = ANY ($1::text[]) AND order_id NOT IN (SELECT order_id FROM free)
"""
# Both ends of the primary key: what is stored under the first IDs may be of another kind than what is under the last.
_SOME_STORED = """
(SELECT order_id FROM orders ORDER BY order_id DESC LIMIT ($1 + 1) / 2)
UNION
(SELECT order_id FROM orders ORDER BY order_id LIMIT $1 / 2)
"""
_EFFECTS = {effect.value: effect for effect in Effect}


class OrderStore:
    """Stores orders by natural key, guarded by version.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now; calling again is safe.

    Attributes:
        timeout: seconds within which a batch has to be stored.
    """

    timeout: ClassVar[float] = BATCH_TIMEOUT

    def __init__(self, connection: Reconnecting) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """A store with its own connection.

        The statement is prepared, which takes some 40 ms, so that the first orders do not wait for that; not behind a pooler,
        where nothing stays prepared.
        """
        is_pooled = await is_behind_pooler(dsn)
        connection = Reconnecting(dsn, pooled=is_pooled, timeout=cls.timeout, lock_timeout=cls.timeout * _LOCK_SHARE)
        try:
            if not is_pooled:
                # Whatever is wrong, the first batch meets it as well, and knows what to do.
                with suppress(TimeoutError, StoreUnavailable, RowsRefused):
                    async with asyncio.timeout(_PREPARE_TIMEOUT):
                        await connection.fetch(*_statement([]))
            yield cls(connection)
        finally:
            connection.close()

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store a batch in one transaction, committed on return.

        Of several rows with one key the newest is stored; the others count as unchanged, or as suppressed if that one is.

        Returns:
            What happened to each row, in the order of `rows`.

        Raises:
            RowsRefused: if PostgreSQL refuses one of the rows; nothing is stored.
            StoreTooSlow: if it did not finish in time; it may have been stored nevertheless.
            StoreLocked: if another transaction has locked a row, or the table; nothing is stored.
        """
        return await self._upsert(rows, self._connection.fetch)

    async def upsert_unlocked(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """As `upsert`, without waiting for rows that other transactions have locked, or have inserted and not committed.

        PostgreSQL skips none of the second kind, so each costs a statement that waits for it, for some milliseconds.

        Raises:
            StoreLocked: if there are such rows. That the table is locked is another `StoreUnavailable`.
        """
        return await self._upsert(rows, partial(self._connection.fetch_unlocked, _TABLES))

    async def _upsert(
        self, rows: Sequence[OrderRow], fetch: Callable[..., Awaitable[list[asyncpg.Record]]]
    ) -> list[Effect]:
        newest = {row.order_id: row for row in rows}
        if has_several := len(newest) < len(rows):
            newest = _newest(rows)
        with _rows_blamed():
            records = await fetch(*_statement([newest[key] for key in sorted(newest)]))
        effects = {order_id: _EFFECTS[effect] for order_id, effect in records}
        suppressed = set()
        if len(effects) < len(newest):
            suppressed = await self._suppressed([row for key, row in newest.items() if key not in effects])
            effects |= dict.fromkeys(suppressed, Effect.SUPPRESSED)
        unchanged = Effect.UNCHANGED
        if not has_several:
            return [effects.get(row.order_id, unchanged) for row in rows]
        return [
            effects.get(row.order_id, unchanged)
            if newest[row.order_id] is row or row.order_id in suppressed
            else unchanged
            for row in rows
        ]

    async def _suppressed(self, rows: Sequence[OrderRow]) -> set[str]:
        """The orders among these, of which a statement has reported nothing, that it should have stored."""
        sent, values = batch(rows)
        try:
            records = await self._connection.fetch(_SUPPRESSED % incoming(sent), *values)
        except StoreLocked as error:
            # Of a table. That nothing was stored, as a locked row would mean, is not so.
            raise StoreUnavailable(str(error)) from error
        return {order_id for (order_id,) in records}

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Whether stored rows would be updated by the same orders, fetched later; they are not.

        Raises:
            RowsRefused: if PostgreSQL refuses them.
            StoreLocked: if another transaction has locked a row, or the table.
        """
        newest = {row.order_id: row for row in sorted(rows, key=lambda row: row.age)}
        later = [msgspec.structs.replace(row, fetched_at=row.fetched_at + _MOMENT) for _, row in sorted(newest.items())]
        with _rows_blamed():
            records = await self._connection.fetch_rolled_back(*_statement(later))
        return any(_EFFECTS[effect] is not Effect.ERASED for _, effect in records)

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Those of the orders that are stored, and whose rows another transaction has locked; does not wait for them.

        Raises:
            StoreUnavailable: if it cannot be found out, for example because the whole table is locked.
        """
        records = await self._connection.fetch_unlocked(_TABLES, _LOCKED, list(order_ids))
        return {order_id for (order_id,) in records}

    async def some_stored(self, count: int) -> list[str]:
        """IDs of up to `count` stored orders: the first and the last ones in the order of their IDs.

        Raises:
            StoreUnavailable: if they cannot be read.
        """
        return [order_id for (order_id,) in await self._connection.fetch(_SOME_STORED, count)]


@contextmanager
def _rows_blamed() -> Iterator[None]:
    """Refuse the rows of a statement that has failed in a way that some of them may have caused."""
    try:
        yield
    except StoreUnavailable as error:
        if may_be_of_a_row(error):
            raise RowsRefused(str(error)) from error
        raise


def _newest(rows: Sequence[OrderRow]) -> dict[str, OrderRow]:
    """The newest row of each order; of equal ones the first."""
    newest: dict[str, OrderRow] = {}
    for row in rows:
        other = newest.get(row.order_id)
        if other is None or other.age < row.age:
            newest[row.order_id] = row
    return newest


async def plan_upsert(connection: asyncpg.Connection) -> None:
    """Have PostgreSQL plan the statement that stores a batch, without running it: so it checks tables, columns and privileges.

    Raises:
        asyncpg.PostgresError: it could not be run.
    """
    await connection.fetch(f"EXPLAIN {_upsert(SENT)}", *arguments([]))
