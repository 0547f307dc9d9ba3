"""The statements that store a batch of orders, with or without their history."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from ingest.domain.orders.order_row import OrderRow
from ingest.domain.source_name import UNNAMED
from ingest.store.orders.columns import COLUMNS, MADE, SENT, Update, arguments, named, updated

# Of the arguments of `note_arguments`.
_NOTE_TYPES = ("text", "boolean", "text", "integer", "float8", "text", "float8", "text", "real")
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
_TEMPLATE = f"""
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
    RETURNING order_id, %(version)sCASE ingested_at WHEN statement_timestamp() THEN 'inserted'
                                         WHEN {_CHANGED_AT} THEN 'changed'
                                         ELSE 'unchanged' END AS effect
)%(recorded)s
SELECT order_id, effect FROM written
UNION ALL
SELECT order_id, 'erased' FROM erased
"""  # noqa: S608  names of our own columns, and all values are parameters

UPSERT = _TEMPLATE % {"version": "", "recorded": ""}
"""Stores the rows of a batch. Returns the effect of each, except of rows that are neither stored nor erased."""

# Of several rows with one key, only the newest has been sent to be stored. The others are recorded as well.
UPSERT_RECORDED = _TEMPLATE % {
    "version": "version, ",
    "recorded": f""", recorded AS (
    INSERT INTO order_history (source, order_id, at, event, attempt, took, enqueued_at, replayed_at, version, origin, worker, announced_as)
    SELECT $1, noted.order_id, statement_timestamp(), CASE WHEN is_newest THEN coalesce(effect, 'unchanged') ELSE 'unchanged' END,
           attempt, took, to_timestamp(enqueued_at), to_timestamp(replayed_at), CASE WHEN is_newest THEN version END, origin, worker,
           announced_as
    FROM unnest({", ".join(f"${len(SENT) + number}::{kind}[]" for number, kind in enumerate(_NOTE_TYPES, 2))})
         AS noted (order_id, is_newest, announced_as, attempt, enqueued_at, origin, replayed_at, worker, took)
    LEFT JOIN written ON written.order_id = noted.order_id
    WHERE noted.order_id NOT IN (SELECT order_id FROM erased)
)""",  # noqa: S608  as above
}
"""As `UPSERT`, and records the history of the orders. Its further arguments are `note_arguments`."""

# Finds rows that a trigger has prevented, after the commit of a statement that did not report them. A row is also not reported if an
# equal or newer version is stored, perhaps by another worker.
SUPPRESSED = f"""
WITH made AS (
    {MADE}
)
SELECT order_id
FROM made LEFT JOIN orders AS o USING (source, order_id)
WHERE NOT EXISTS (SELECT FROM erased_orders AS erased WHERE erased.source = $1 AND erased.order_id = made.order_id)
  AND (o.version IS NULL
       OR (o.version, o.fetched_at) < (made.version, made.fetched_at)
          AND ({named("o.{}", _CONTENT)}) IS DISTINCT FROM ({named("made.{}", _CONTENT)}))
"""  # noqa: S608  names of our own columns, and all values are parameters


def note_arguments(rows: Sequence[OrderRow], newest: Sequence[OrderRow]) -> list[tuple[Any, ...]]:
    """Return the arguments that record the history of rows with a note. Rows have notes only if a history is kept.

    Args:
        rows: of the batch.
        newest: those that are sent to be stored.
    """
    if not rows or rows[0].note is None:
        return []
    stored = set(map(id, newest))
    values = []
    for row in rows:
        if (note := row.note) is not None:
            # In ASCII, which every database can store. The ID of the row may be storable where this one is not.
            announced_as = None if note.order_id == row.order_id else ascii(note.order_id)[1:-1]
            values.append(
                (row.order_id, id(row) in stored, announced_as, note.attempt, note.enqueued_at, note.origin, note.replayed_at,
                 note.worker, note.took)
            )  # fmt: skip
    return list(zip(*values, strict=True))


async def plan_upsert(connection: asyncpg.Connection) -> None:
    """Plan the statement that stores a batch, without running it, to check tables, columns and privileges.

    Raises:
        asyncpg.PostgresError: the statement cannot be run.
    """
    await connection.fetch(f"EXPLAIN {UPSERT}", UNNAMED, *arguments([]))
