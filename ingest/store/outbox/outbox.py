"""The outbox: a table in the announcing program's own PostgreSQL, whose rows are orders to be announced.

A program adds a row in the transaction that changes the order. Here rows are taken in the order of their numbers, under a
lock that one transaction has at a time, so that several relays may run. A row is deleted in the transaction that has read
it, after it was announced: when the process dies here, PostgreSQL ends the transaction, which releases the lock, and the
row is read again. The lock is that of a transaction, not of a session: it also works through PgBouncer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import asyncpg

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT
from ingest.domain.errors import RowsRefused, StoreLocked, StoreUnavailable, Unavailable
from ingest.store.connection import connect
from ingest.store.translation import StoreRefused, may_be_of_a_row, translated, translated_for_rows

# Of the documents in one batch, as text; the last of them may exceed it.
_BATCH_BYTES = 8 * 1024 * 1024
# Of an order ID, in characters: longer than any that can be announced, and as much as a message about one shows.
_ORDER_ID_LENGTH = 100
# By how much the stored size of a compressed document is multiplied for a first guess at its length.
_USUAL_COMPRESSION = 4
_MOST_COUNTED = 1_000_000
# The upper half of the number of the advisory lock, "ingo"; the lower half is the table's OID.
_LOCK = 0x696E676F << 32
# Milliseconds. A relay that waits for its turn asks again after the first. One that stands still in the middle of a batch, or
# whose host is gone, loses its turn after the second.
_LIMITS = "SET LOCAL lock_timeout = 2000; SET LOCAL idle_in_transaction_session_timeout = 60000"
_LOOKING = f"SET TRANSACTION READ ONLY; {_LIMITS}"
# Each statement sees what was committed before it, whatever the database's default is: rows are read once the lock is held. A
# constraint that is checked at the commit would refuse all rows.
_RELAYING = f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET CONSTRAINTS ALL IMMEDIATE; {_LIMITS}"


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row.

    Attributes:
        number: its `id`.
        announcement: the UUID that identifies it, whatever becomes of the table; None in a table that was altered.
        order_id: as the program wrote it; the beginning of a text that is too long.
        document: the order itself, as JSON; None if there is none, or it is too long.
        document_bytes: the length of the document.
        express: whether it is for the express lane.
    """

    number: int
    announcement: str | None
    order_id: str
    document: str | None
    document_bytes: int
    express: bool


@dataclass(frozen=True, slots=True)
class Announced:
    """What has become of the rows of a batch; those that are in neither list stay as they are.

    Attributes:
        done: the numbers of rows that the queue has.
        refused: why others can never be announced, or not be deleted, by number.
        unavailable: why the rest could not be announced now.
        unnumbered: how many rows without an `id` were refused, in a table that was altered.
    """

    done: Sequence[int] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    unavailable: Unavailable | None = None
    unnumbered: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the outbox.

    Attributes:
        rows: how many, counted up to a million.
        oldest_age: seconds since the first of them was added.
    """

    rows: int
    oldest_age: float


Announce = Callable[[Sequence[OutboxRow]], Awaitable[Announced]]


class Outbox:
    """The table, over one connection.

    Attributes:
        is_notified: whether PostgreSQL tells of new rows; a pooler that assigns transactions to changing servers does not.
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
        self._refuse_unnumbered = (
            f"UPDATE {quoted} SET error = 'id is null: omit it, the column has a default'"  # noqa: S608  as above
            " WHERE id IS NULL AND error IS NULL AND ctid = ANY(ARRAY("
            f"SELECT ctid FROM {quoted} WHERE id IS NULL AND error IS NULL LIMIT $1 FOR UPDATE SKIP LOCKED))"
        )
        self._kept = f"SELECT id FROM {quoted} WHERE error IS NULL AND id = ANY($1::bigint[])"  # noqa: S608  as above
        self._count = (
            "SELECT count(*) AS rows, extract(epoch FROM now() - min(created_at))::float8 AS age"  # noqa: S608  as above
            f" FROM (SELECT created_at FROM {quoted} WHERE error IS NULL ORDER BY id LIMIT {_MOST_COUNTED}) AS waiting"
        )

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, table: str) -> AsyncIterator[Self]:
        """Connect, and listen for new rows where that is possible.

        Raises:
            StoreUnavailable: if PostgreSQL cannot be used now.
            StoreRefused: if it refuses us: no such table, no right to use it.
        """
        async with connect(dsn, setting="INGEST_OUTBOX_DSN") as connection:
            with translated():
                async with connection.transaction():
                    own = await connection.fetchval("SELECT pg_backend_pid()")
                outbox = cls(connection, table, is_notified=own == connection.get_server_pid())
                if outbox.is_notified:
                    await connection.add_listener(channel_of(table), outbox._wake)
                connection.add_termination_listener(outbox._wake)
            yield outbox

    async def relay(self, most: int, announce: Announce) -> Announced | None:
        """Announce up to `most` rows, the first ones, and delete those that were; None if another relay has its turn.

        Raises:
            StoreUnavailable: if PostgreSQL cannot be used now; rows may have been announced that are still there.
            StoreRefused: if it refuses us.
        """
        self.changed.clear()
        async with self._transaction(_RELAYING):
            try:
                await self._connection.execute(self._lock)
            except asyncpg.LockNotAvailableError:
                return None
            records = await self._read(most)
            rows = [_row(record) for record in records if record["id"] is not None]
            if records and not rows:
                # They sort last: nothing else waits. Nothing could delete one of them alone, once it was announced.
                tag = await self._connection.execute(self._refuse_unnumbered, most)
                return Announced(unnumbered=_count_of(tag))
            announced = await announce(rows) if rows else Announced()
            # Only what the queue has is deleted; a crash before the commit announces it again, under the same key.
            return await self._settle(announced)

    async def _read(self, most: int) -> list[asyncpg.Record]:
        """The first rows, with the lock: what the relay before has deleted is gone."""
        with _table_blamed():  # that it is a row's lock is not possible: those are skipped
            return await self._connection.fetch(self._select, most)

    async def backlog(self) -> Backlog:
        """What waits.

        Raises:
            StoreUnavailable: if PostgreSQL cannot be used now, or cannot count, for example within its `statement_timeout`. The
                connection can be used further, if it is not lost.
        """
        record = problem = None
        async with self._transaction(_LOOKING):
            try:
                record = await self._connection.fetchrow(self._count)
            except asyncpg.PostgresError as error:
                if self._connection.is_closed():
                    raise
                problem = error  # the COMMIT of a failed transaction rolls it back
        if problem is not None:
            with translated(), _table_blamed():
                raise problem
        assert record is not None  # noqa: S101  an aggregate without GROUP BY has a row
        return Backlog(record["rows"], max(0.0, record["age"] or 0.0))

    async def plan(self) -> None:
        """Have PostgreSQL plan the statements of a relay, without running them: so it checks the table and privileges.

        Raises:
            StoreLocked: if another transaction has locked the table.
            StoreUnavailable: if they could not be run.
        """
        async with self._transaction(_LOOKING):
            with _table_blamed():
                await self._connection.fetch(f"EXPLAIN {self._select}", 1)
            await self._connection.fetch(f"EXPLAIN {self._delete}", [])
            await self._connection.fetch(f"EXPLAIN {self._refuse}", [], [])

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[None]:
        """A transaction, committed at the end of the block.

        After an error the connection is of no further use. Cancelled, it is closed at once: a server that does not answer
        could not confirm a rollback either.
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

    async def _settle(self, announced: Announced) -> Announced:
        """Delete or mark what is to be; returns what has come of it.

        A row whose DELETE is refused is marked, too: it would otherwise be announced with each batch.
        """
        done, refused = list(announced.done), dict(announced.refused)
        undeleted, kept = await self._apart(done, lambda part: self._connection.execute(self._delete, part))
        refused |= {number: f"queued, but PostgreSQL refuses to delete it: {why}" for number, why in undeleted.items()}
        unmarked, still = await self._apart([*refused], lambda part: self._mark(part, refused))
        kept |= still | unmarked.keys()
        settled = Announced(
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

    async def _mark(self, numbers: Sequence[int], errors: Mapping[int, str]) -> str:
        return await self._connection.execute(self._refuse, numbers, [errors[number] for number in numbers])

    async def _apart(
        self, numbers: Sequence[int], execute: Callable[[Sequence[int]], Awaitable[str]]
    ) -> tuple[dict[int, str], set[int]]:
        """Execute a statement for rows, without those for which it is refused: they are found by halving.

        Returns:
            Why it is refused for some, by number, and which others it has left as they are.
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
                if not _affected(tag, part):
                    kept |= await self._waiting(part)
                continue
            await self._connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
            if len(part) == 1:
                refused[part[0]] = why
            else:
                parts += (part[len(part) // 2 :], part[: len(part) // 2])
        return refused, kept

    async def _waiting(self, numbers: Sequence[int]) -> set[int]:
        """Which of these rows still wait: a trigger or a rule of the program may have marked them instead."""
        return {record["id"] for record in await self._connection.fetch(self._kept, numbers)}

    def _wake(self, *_: object) -> None:
        self.changed.set()


@contextmanager
def _table_blamed() -> Iterator[None]:
    """Say that the outbox is locked, where a statement has waited for its lock."""
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise StoreLocked(f"another transaction has locked the outbox: {error.args[0]}") from error


def quoted_table(table: str) -> str:
    """The name of the table, with its schema if it has one, for SQL."""
    return ".".join(f'"{part}"' for part in table.split("."))


def channel_of(table: str) -> str:
    """The channel on which PostgreSQL tells of new rows."""
    return table.rpartition(".")[2]


def _affected(tag: str, numbers: Sequence[int]) -> bool:
    """Whether a statement has affected all of these rows, by its command tag, such as `DELETE 3`."""
    return _count_of(tag) >= len(numbers)


def _count_of(tag: str) -> int:
    return int(tag.rpartition(" ")[2])


def _select(quoted: str) -> str:
    # The stored sizes, which cost nothing, tell how many documents are written out to be measured, and their measures how many of
    # them are sent. OFFSET 0: each is measured once, and no more of them.
    return (
        f"SELECT id, announcement::text AS announcement, left(order_id::text, {_ORDER_ID_LENGTH}) AS order_id,"  # noqa: S608  the table's name is quoted
        " express, bytes,"
        f" CASE WHEN bytes <= {DOCUMENT_LIMIT} THEN document::text END AS document"
        f" FROM (SELECT *, coalesce(sum(least(bytes, {DOCUMENT_LIMIT})) OVER"
        " (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before"
        " FROM (SELECT *, coalesce(octet_length(document::text), 0) AS bytes"
        " FROM (SELECT *, sum(size) OVER (ORDER BY id) - size AS stored_before"
        " FROM (SELECT *, coalesce(pg_column_size(document), 0)::bigint"
        f" * CASE WHEN pg_column_compression(document) IS NULL THEN 1 ELSE {_USUAL_COMPRESSION} END AS size"
        f" FROM {quoted} WHERE error IS NULL ORDER BY id LIMIT $1"
        # Somebody's open transaction on a row holds up that row alone.
        " FOR UPDATE SKIP LOCKED) AS first_rows) AS stored"
        f" WHERE stored_before < {_BATCH_BYTES} OFFSET 0) AS measured) AS written"
        f" WHERE before < {_BATCH_BYTES} ORDER BY id"
    )


def _row(record: Any) -> OutboxRow:
    return OutboxRow(
        record["id"],
        record["announcement"],
        record["order_id"] or "",
        record["document"],
        record["bytes"] or 0,
        bool(record["express"]),
    )
