"""Reads and deletes rows of the outbox, a table of orders to enqueue in the announcing program's own PostgreSQL.

A program adds a row in the transaction that changes the order. Rows are read in the order of their numbers under an exclusive lock, so
that several relays may run. A row is deleted in the transaction that has read it, after the order is queued. If the process dies here,
PostgreSQL rolls the transaction back and releases the lock, and the row is read again. The lock belongs to the transaction and not to
the session, so that it works through PgBouncer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

import asyncpg

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT
from ingest.domain.errors import RowsRefused, StoreLocked, StoreUnavailable, Unavailable
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import connect, transaction
from ingest.store.connections.translation import StoreRefused, may_be_of_a_row, translated, translated_for_rows

# Bytes of documents as text in one batch, which the last document may exceed.
_BATCH_BYTES = 8 * 1024 * 1024
# Characters of an order ID to read, so that an ID that is too long stays too long.
_ORDER_ID_LENGTH = 200
# In a table of an earlier release, which has no column `source`, the name refers to this row.
_UNNAMED = "(SELECT '' AS source) AS unnamed"
_ITS_SOURCE = "coalesce(source::text, '')"
_SOURCE_LENGTH = 64
# Factor that estimates a document's length from its compressed size.
_USUAL_COMPRESSION = 4
_MOST_COUNTED = 1_000_000
# The upper half of the advisory lock's number is "ingo" in ASCII. The lower half is the table's OID.
_LOCK = 0x696E676F << 32
# Milliseconds. A waiting relay retries after the first timeout. A relay that stalls during a batch, or whose host fails, loses the lock
# after the second.
_LIMITS = "SET LOCAL lock_timeout = 2000; SET LOCAL idle_in_transaction_session_timeout = 60000"
_LOOKING = f"SET TRANSACTION READ ONLY; {_LIMITS}"
# Overrides the database's default, so that rows are read as committed when the lock is acquired. A constraint checked at the commit
# would reject all rows together.
_RELAYING = f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET CONSTRAINTS ALL IMMEDIATE; {_LIMITS}"


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row.

    Attributes:
        number: the `id` of the row.
        announcement: a UUID that identifies the row even after the table is created again. None in an altered table.
        order_id: as written by the program, but truncated if too long.
        document: the order as JSON. None if it is missing or too long.
        source: its name. Empty for the only source.
    """

    number: int
    announcement: str | None
    order_id: str
    document: str | None
    document_bytes: int
    express: bool
    source: str


@dataclass(frozen=True, slots=True)
class OutboxOrder:
    """The result of a batch. Rows that are in neither list stay unchanged.

    Attributes:
        done: numbers of queued rows.
        refused: reasons why rows can never be queued, or not be deleted, by number.
        unavailable: reason why the rest could not be queued now.
    """

    done: Sequence[int] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    unavailable: Unavailable | None = None


@dataclass(frozen=True, slots=True)
class OutboxBacklog:
    """The rows that wait in the outbox.

    Attributes:
        rows: number of rows, counted up to a million.
        oldest_age: seconds since the oldest row was added.
        held: rows of unknown sources among them.
        held_source: the name of one of these sources, truncated if too long.
    """

    rows: int
    oldest_age: float
    held: int = 0
    held_source: str = ""


Announce = Callable[[Sequence[OutboxRow]], Awaitable[OutboxOrder]]


class Outbox:
    """The outbox table, accessed over one connection.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used now, or `StoreRefused` when it denies access.

    Attributes:
        is_notified: whether PostgreSQL sends notifications of new rows, which a transaction pooler does not pass on.
        changed: set when rows were added, or the connection was lost.
    """

    def __init__(self, connection: asyncpg.Connection, table: str, *, is_notified: bool) -> None:
        self.is_notified = is_notified
        self.changed = asyncio.Event()
        self._connection = connection
        quoted = quoted_table(table)
        self._lock = f"SELECT pg_advisory_xact_lock({_LOCK} + '{quoted}'::regclass::oid::bigint)"
        self._select = _select(quoted)
        self._delete = f"DELETE FROM {quoted} WHERE id = ANY($1::bigint[])"  # noqa: S608  the table's name is quoted
        self._refuse = (
            f"UPDATE {quoted} AS row SET error = refused.error"  # noqa: S608  as above
            " FROM unnest($1::bigint[], $2::text[]) AS refused (id, error) WHERE row.id = refused.id"
        )
        self._kept = f"SELECT id FROM {quoted} WHERE error IS NULL AND id = ANY($1::bigint[])"  # noqa: S608  as above
        self._count = _count(quoted)

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, table: str) -> AsyncIterator[Self]:
        """Connect, and listen for new rows if possible."""
        async with connect(dsn, setting="INGEST_OUTBOX_DSN") as connection:
            with translated():
                async with transaction(connection):
                    own = await connection.fetchval("SELECT pg_backend_pid()")
                outbox = cls(connection, table, is_notified=own == connection.get_server_pid())
                if outbox.is_notified:
                    await connection.add_listener(channel_of(table), outbox._wake)
                connection.add_termination_listener(outbox._wake)
            yield outbox

    async def relay(self, most: int, announce: Announce, sources: Sequence[str] = (UNNAMED,)) -> OutboxOrder | None:
        """Enqueue the first rows of these sources, up to `most`, and delete the queued ones. None if another relay holds the lock.

        After an error, queued rows may remain in the table.
        """
        self.changed.clear()
        async with self._transaction(_RELAYING):
            try:
                await self._connection.execute(self._lock)
            except asyncpg.LockNotAvailableError:
                return None
            # Under the lock, after deletions by the previous relay.
            with _table_blamed():  # locked rows are skipped
                rows = [OutboxRow(**record) for record in await self._connection.fetch(self._select, most, sources)]
            announced = await announce(rows) if rows else OutboxOrder()
            # Only queued rows are deleted. After a crash before the commit, they are enqueued again under the same key.
            return await self._settle(announced)

    async def backlog(self, sources: Sequence[str] | None = None) -> OutboxBacklog:
        """Count the waiting rows. Rows of other sources than these are held. None: all sources are known.

        Raises:
            StoreUnavailable: PostgreSQL cannot be used now, or counting fails, for example by its `statement_timeout`. The connection
                stays usable unless it is lost.
        """
        record = problem = None
        async with self._transaction(_LOOKING):
            try:
                record = await self._connection.fetchrow(self._count, sources)
            except asyncpg.PostgresError as error:
                if self._connection.is_closed():
                    raise
                problem = error  # the COMMIT of a failed transaction rolls it back
        if problem is not None:
            with translated(), _table_blamed():
                raise problem
        assert record is not None  # noqa: S101  an aggregate without GROUP BY has a row
        return OutboxBacklog(
            record["rows"], max(0.0, record["age"] or 0.0), record["held"], record["held_source"] or ""
        )

    async def plan(self) -> None:
        """Plan the statements of a relay, without running them, to check the table and privileges.

        Raises:
            StoreLocked: another transaction has locked the table.
            StoreUnavailable: the statements cannot be run.
        """
        async with self._transaction(_LOOKING):
            with _table_blamed():
                await self._connection.fetch(f"EXPLAIN {self._select}", 1, [UNNAMED])
            await self._connection.fetch(f"EXPLAIN {self._delete}", [])
            await self._connection.fetch(f"EXPLAIN {self._refuse}", [], [])

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[None]:
        """A transaction, committed at the end of the block.

        After an error or a cancellation the connection is terminated without a rollback, which an unresponsive server could not confirm.
        """
        try:
            with translated():
                await self._connection.execute(f"BEGIN; {begin}")
                yield
                await self._connection.execute("COMMIT")
        except StoreRefused as error:
            self._connection.terminate()
            if isinstance(error.__cause__, asyncpg.UndefinedTableError):
                raise StoreRefused(f"{error}; run `ingest relay --create`, or set INGEST_OUTBOX_TABLE") from error
            raise
        except BaseException:
            self._connection.terminate()
            raise

    async def _settle(self, announced: OutboxOrder) -> OutboxOrder:
        """Delete queued rows and mark rejected ones. Returns the result.

        A row whose DELETE is rejected is also marked, because otherwise each batch would enqueue it again.
        """
        done, refused = list(announced.done), dict(announced.refused)
        undeleted, kept = await self._apart(done, lambda part: self._connection.execute(self._delete, part))
        refused |= {number: f"queued, but PostgreSQL rejects its DELETE: {why}" for number, why in undeleted.items()}
        unmarked, still = await self._apart(
            [*refused],
            lambda part: self._connection.execute(self._refuse, part, [refused[number] for number in part]),
        )
        kept |= still | unmarked.keys()
        settled = OutboxOrder(
            [number for number in done if number not in kept | refused.keys()],
            {number: error for number, error in refused.items() if number not in kept},
            announced.unavailable,
        )
        if not kept:
            return settled
        why = next(iter(unmarked.values()), "row-level security, a trigger or a rule skips it")
        return replace(
            settled,
            unavailable=StoreRefused(
                f"PostgreSQL keeps {len(kept):,} rows of the outbox that the relay is done with, the first with the id "
                f"{min(kept)}: it does not execute their DELETE, or the UPDATE of their error: {why}"
            ),
        )

    async def _apart(
        self, numbers: Sequence[int], execute: Callable[[Sequence[int]], Awaitable[str]]
    ) -> tuple[dict[int, str], set[int]]:
        """Execute a statement for rows except rejected ones, which are found by halving.

        Returns:
            The reasons for rejected rows, by number, and the numbers of rows that the statement left unchanged.
        """
        refused: dict[int, str] = {}
        kept: set[int] = set()
        parts = [numbers] if numbers else []
        while parts:
            part = parts.pop()
            await self._connection.execute("SAVEPOINT part")
            try:
                with translated_for_rows():
                    tag = await execute(part)
            except StoreUnavailable as error:
                if not may_be_of_a_row(error):
                    raise
                why = str(error)
            except RowsRefused as error:
                why = str(error)
            else:
                if parts:
                    await self._connection.execute("RELEASE SAVEPOINT part")
                # By a command tag such as `DELETE 3`. A trigger or rule of the program may have marked the other rows instead.
                if int(tag.rpartition(" ")[2]) < len(part):
                    kept |= {record["id"] for record in await self._connection.fetch(self._kept, part)}
                continue
            await self._connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
            if len(part) == 1:
                refused[part[0]] = why
            else:
                parts += (part[len(part) // 2 :], part[: len(part) // 2])
        return refused, kept

    def _wake(self, *_: object) -> None:
        self.changed.set()


@contextmanager
def _table_blamed() -> Iterator[None]:
    """Raise `StoreLocked` if a statement has waited too long for the table's lock."""
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise StoreLocked(f"another transaction has locked the outbox: {error.args[0]}") from error


def quoted_table(table: str) -> str:
    """Return the table's name, with its schema if given, quoted for SQL."""
    return ".".join(f'"{part}"' for part in table.split("."))


def channel_of(table: str) -> str:
    """Return the channel for notifications of new rows."""
    return table.rpartition(".")[2]


def _count(quoted: str) -> str:
    return f"""
        SELECT count(*) AS rows, extract(epoch FROM now() - min(created_at))::float8 AS age,
               count(*) FILTER (WHERE its_source <> ALL ($1::text[])) AS held,
               left(min(its_source) FILTER (WHERE its_source <> ALL ($1::text[])), {_SOURCE_LENGTH}) AS held_source
        FROM {_UNNAMED} CROSS JOIN LATERAL (
             SELECT created_at, {_ITS_SOURCE} AS its_source FROM {quoted} WHERE error IS NULL ORDER BY id LIMIT {_MOST_COUNTED}
        ) AS waiting"""  # noqa: S608  the table's name is quoted


def _select(quoted: str) -> str:
    # The stored sizes, which are cheap to read, limit how many documents are converted to text and measured. The measured sizes limit
    # how many are sent. OFFSET 0 prevents further conversions.
    return f"""
        SELECT id AS number, announcement::text AS announcement,
               coalesce(left(order_id::text, {_ORDER_ID_LENGTH}), '') AS order_id,
               CASE WHEN bytes <= {DOCUMENT_LIMIT} THEN document::text END AS document, bytes AS document_bytes,
               coalesce(express, false) AS express, its_source AS source
        FROM (SELECT *, coalesce(sum(least(bytes, {DOCUMENT_LIMIT})) OVER (
                            ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
              FROM (SELECT *, coalesce(octet_length(document::text), 0) AS bytes
                    FROM (SELECT first_rows.*, sum(size) OVER (ORDER BY id) - size AS stored_before
                          FROM {_UNNAMED} CROSS JOIN LATERAL (
                                SELECT *, {_ITS_SOURCE} AS its_source,
                                       coalesce(pg_column_size(document), 0)::bigint
                                          * CASE WHEN pg_column_compression(document) IS NULL THEN 1
                                                 ELSE {_USUAL_COMPRESSION} END AS size
                                FROM {quoted} WHERE error IS NULL AND id IS NOT NULL AND {_ITS_SOURCE} = ANY ($2::text[])
                                ORDER BY id LIMIT $1
                                -- An open transaction on a row delays only that row.
                                FOR UPDATE SKIP LOCKED) AS first_rows) AS stored
                    WHERE stored_before < {_BATCH_BYTES} OFFSET 0) AS measured) AS written
        WHERE before < {_BATCH_BYTES} ORDER BY id"""  # noqa: S608  the table's name is quoted
