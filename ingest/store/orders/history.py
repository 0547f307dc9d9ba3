"""Keeps the history of orders in the table `order_history`, for a limited time.

Rows about stored orders are written by the statement that stores them, see `order_store`. All others are added here. An event may be
recorded twice after a lost reply, and those in the memory of a process are lost if it dies.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg

from ingest.domain.orders.order_history import DeliveryNote, HistoryEntry, HistoryEvent, OrderHistory, RecordedEvent
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.statements import Fetches

# An order that waits for a throttled API may have a row each half a minute.
_MOST_EXAMINED = 2_000
# Rows of one statement take PostgreSQL about 20 ms.
_DELETED_AT_ONCE = 5_000
_LONGEST_ERROR = 500
_STATUS = re.compile(r"\bHTTP (\d{3})\b")

# Erased orders have no history. Erasing locks the table against this statement.
_ADD = """
INSERT INTO order_history (source, order_id, at, event, attempt, took, enqueued_at, replayed_at, next_at, origin, reason, error, worker)
SELECT $1, order_id, at, event, attempt, took, to_timestamp(enqueued_at), to_timestamp(replayed_at), at + make_interval(secs => next_in),
       origin, reason, error, worker
FROM (
    SELECT *, statement_timestamp() - make_interval(secs => age) AS at
    FROM unnest($2::text[], $3::integer[], $4::float8[], $5::text[], $6::float8[], $7::text[], $8::real[],
                $9::text[], $10::float8[], $11::float8[], $12::text[], $13::text[])
         AS sent (order_id, attempt, enqueued_at, origin, replayed_at, worker, took, event, age, next_in, reason, error)
) AS added
WHERE NOT EXISTS (SELECT FROM erased_orders AS e WHERE e.source = $1 AND e.order_id = added.order_id)
"""
# For operations, which have no delivery.
_ADD_OPERATION = """
INSERT INTO order_history (source, order_id, at, event, origin)
SELECT $1, order_id, statement_timestamp(), $3, $4 FROM unnest($2::text[]) AS sent (order_id)
WHERE NOT EXISTS (SELECT FROM erased_orders AS e WHERE e.source = $1 AND e.order_id = sent.order_id)
"""
# Without FOR UPDATE, which needs a right that the role of workers lacks. A row that another process has deleted is skipped.
_DELETE = f"""
WITH old AS (
    SELECT ctid FROM order_history WHERE at < statement_timestamp() - make_interval(secs => $1::float8)
    ORDER BY at LIMIT {_DELETED_AT_ONCE}
), deleted AS (
    DELETE FROM order_history WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING 1
)
SELECT count(*) FROM deleted
"""  # noqa: S608  a constant
_PAGE = f"""
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY enqueued_at, origin ORDER BY at) = 1 AND enqueued_at IS NOT NULL AS is_first,
           row_number() OVER (PARTITION BY replayed_at ORDER BY at) = 1 AND replayed_at IS NOT NULL AS is_replayed
    FROM (
        SELECT * FROM order_history WHERE source = $1 AND order_id = $2 AND at < coalesce($3::timestamptz, 'infinity')
        ORDER BY at DESC LIMIT {_MOST_EXAMINED}
    ) AS newest
) AS numbered
ORDER BY at DESC LIMIT $4
"""  # noqa: S608  a constant
_ERASED_AT = "SELECT erased_at FROM erased_orders WHERE source = $1 AND order_id = $2"
_ATTEMPTS = {
    HistoryEvent.INSERTED,
    HistoryEvent.CHANGED,
    HistoryEvent.UNCHANGED,
    HistoryEvent.SKIPPED,
    HistoryEvent.RETRIED,
    HistoryEvent.DEAD_LETTERED,
}


class HistoryStore:
    """The history of the orders of one source.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now.
    """

    def __init__(self, connection: Fetches, source: str = UNNAMED) -> None:
        self._connection = connection
        self._source = source

    async def add(self, events: Sequence[RecordedEvent]) -> None:
        """Record events of deliveries, committed on return."""
        if not events:
            return
        notes = list(zip(*(_values(event.note) for event in events), strict=True))
        others = [
            (each.event.value, each.age, each.after, each.reason, (each.error or "")[:_LONGEST_ERROR] or None)
            for each in events
        ]
        await self._connection.fetch(_ADD, self._source, *notes, *zip(*others, strict=True))

    async def add_operation(self, order_ids: Sequence[str], event: HistoryEvent, actor: str) -> None:
        """Record that an operator has changed orders, committed on return."""
        await self._connection.fetch(_ADD_OPERATION, self._source, list(order_ids), event.value, actor)

    async def delete_old(self, keep: float) -> bool:
        """Delete events of all sources that are older than `keep` seconds, a few thousand at most. Returns whether all are deleted."""
        [[deleted]] = await self._connection.fetch(_DELETE, keep)
        return int(deleted) < _DELETED_AT_ONCE

    async def page(self, order_id: str, before: datetime | None, limit: int) -> OrderHistory:
        """Return the newest events of an order before this time, the newest first.

        A page contains a few more than `limit` events, because it also contains the events that led to an attempt.
        """
        rows = await self._connection.fetch(_PAGE, self._source, order_id, before, limit + 1)
        if before is None and not rows:
            erased = await self._connection.fetch(_ERASED_AT, self._source, order_id)
            return OrderHistory(tuple(HistoryEntry(at, HistoryEvent.ERASED) for (at,) in erased))
        shown, older = rows, None
        if len(rows) > limit:
            # Rows of one moment are not divided over two pages.
            shown = [row for row in rows if row["at"] > rows[limit]["at"]] or rows
            older = shown[-1]["at"]
        entries = [entry for row in shown for entry in _entries(row)]
        return OrderHistory(tuple(sorted(entries, key=lambda entry: entry.at, reverse=True)), older)


def _values(note: DeliveryNote) -> tuple[Any, ...]:
    return (
        note.order_id, note.attempt, note.enqueued_at, note.origin, note.replayed_at, note.worker, note.took
    )  # fmt: skip


def _entries(row: asyncpg.Record) -> list[HistoryEntry]:
    """The event of a row, before it those that led to it."""
    try:
        event = HistoryEvent(row["event"])
    except ValueError:  # of a later release
        return []
    is_attempt = event in _ATTEMPTS
    status = _STATUS.search(row["error"] or "")
    found = [
        HistoryEntry(
            row["at"],
            event,
            by=None if is_attempt else row["origin"],
            attempt=row["attempt"],
            status=int(status[1]) if status else None,
            took=None if row["took"] is None else round(row["took"], 4),
            version=row["version"],
            next_at=row["next_at"],
            reason=row["reason"],
            error=row["error"],
            worker=row["worker"],
            announced_as=row["announced_as"],
        )
    ]
    if row["is_replayed"]:
        found.append(HistoryEntry(row["replayed_at"].astimezone(UTC), HistoryEvent.REPLAYED))
    if row["is_first"]:
        found.append(HistoryEntry(row["enqueued_at"].astimezone(UTC), HistoryEvent.ENQUEUED, by=row["origin"]))
    return found
