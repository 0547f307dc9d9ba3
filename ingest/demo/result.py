"""Counts stored, lost, duplicate and wrong orders after the workers have ended.

`ingest.operations.reconcile` finds the orders. This module reads the writes, times and memory use that only PostgreSQL
and Redis record.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from time import monotonic
from typing import Any

import asyncpg
import redis

from ingest.lab.errors import LabFailed
from ingest.operations.reconcile import Backends, reconcile
from ingest.queue.layout.keys import Keys

STREAM = "orders"
_CLIENTS_LEAVE = 15.0  # seconds until PostgreSQL must have noticed that the workers have ended

# Server processes report their counts when they end, and the workers' server processes have ended. A rolled-back
# insert or update is counted, so the result may be too high but never too low. A concurrent insert of the same key
# is counted as inserted and as deleted, and there are no other deletes. An upsert whose WHERE is false is not counted.
_WRITES = "SELECT n_tup_ins + n_tup_upd - n_tup_del FROM pg_stat_user_tables WHERE relid = 'orders'::regclass"
# A later fetch of the same content only updates the time. The row is then older than its document.
_CONFIRMED = "SELECT count(*) FROM orders WHERE fetched_at > ingested_at"
_OTHER_CLIENTS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_EXAMPLES = """
WITH orders AS (
    SELECT order_id, status, placed_at AT TIME ZONE 'UTC' AS placed_at, customer_id, country, line_count, total, currency
    FROM orders
)
          (SELECT * FROM orders ORDER BY placed_at, order_id LIMIT 1)
UNION ALL (SELECT * FROM orders WHERE status = 'cancelled' ORDER BY placed_at, order_id LIMIT 1)
UNION ALL (SELECT * FROM orders WHERE customer_id IS NULL ORDER BY placed_at, order_id LIMIT 1)
UNION ALL (SELECT * FROM orders ORDER BY line_count DESC, order_id LIMIT 1)
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One row as read from the table, with `placed_at` in UTC."""

    order_id: str
    status: str
    placed_at: datetime
    customer_id: str | None
    country: str | None
    line_count: int
    total: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Result:
    """The results of the enqueued orders.

    Attributes:
        stored: enqueued orders with a row.
        unexpected: rows and dead letters of orders that were not enqueued.
        dead: dead letters of enqueued orders without a row.
        unfinished: enqueued orders that are still queued or wait for a retry.
        lost: enqueued orders that were not found anywhere.
        written_twice: inserts and updates beyond one for each row, except updates that only confirmed a row.
        compared: orders whose content was compared with the document that the API serves.
        wrong: compared orders that differ from their documents.
        last_commit: Unix time of the last write by PostgreSQL's clock, or None without rows.
        examples: a few rows.
        redis_peak: peak size of Redis' data in bytes.
    """

    stored: int
    unexpected: int
    dead: int
    unfinished: int
    lost: int
    written_twice: int
    compared: int
    wrong: int
    last_commit: float | None
    examples: list[Example]
    redis_peak: int


@dataclass(frozen=True, slots=True)
class _Table:
    """PostgreSQL's statistics of the table of orders."""

    written_twice: int
    last_commit: float | None
    examples: list[Example]


def is_drained(queue: redis.Redis) -> bool:
    """Whether the stream and the retry set are empty at the same moment, so that no order is queued or in flight."""
    keys = Keys.of(STREAM)
    with queue.pipeline(transaction=True) as pipe:
        pipe.xlen(keys.stream)
        pipe.zcard(keys.retry)
        return not any(pipe.execute())


async def check(
    backends: Backends, queue: redis.Redis, enqueued: Sequence[str], documents: Mapping[str, bytes]
) -> Result:
    """Find every enqueued order and compare each row that has a document in `documents`, which are keyed by ID."""
    table = await _read_table(backends.postgres_dsn)
    found = await reconcile(enqueued, backends, expected=documents, complete=True)
    memory: Any = queue.info("memory")
    return Result(
        stored=found.stored + found.both,
        unexpected=found.unexpected.count,
        dead=found.dead,
        unfinished=found.queued,
        lost=found.lost.count,
        written_twice=table.written_twice,
        compared=found.compared,
        wrong=found.wrong.count,
        last_commit=table.last_commit,
        examples=table.examples,
        redis_peak=int(memory["used_memory_peak"]),
    )


async def _read_table(dsn: str) -> _Table:
    connection = await asyncpg.connect(dsn)
    try:
        await _wait_until_alone(connection)
        async with connection.transaction(readonly=True, isolation="repeatable_read"):
            writes = await connection.fetchval(_WRITES)
            rows = await connection.fetchval("SELECT count(*) FROM orders")
            confirmed = await connection.fetchval(_CONFIRMED)
            last = await connection.fetchval("SELECT max(ingested_at) FROM orders")
            examples = {row["order_id"]: Example(**row) for row in await connection.fetch(_EXAMPLES)}
    finally:
        await connection.close()
    return _Table(
        written_twice=max(0, writes - rows - confirmed),
        last_commit=last.timestamp() if last else None,
        examples=list(examples.values()),
    )


async def _wait_until_alone(connection: Any) -> None:
    """Wait until all other clients' server processes have ended and therefore reported their counts."""
    deadline = monotonic() + _CLIENTS_LEAVE
    while others := await connection.fetchval(_OTHER_CLIENTS):
        if monotonic() > deadline:
            raise LabFailed(f"{others} connections to PostgreSQL are still open though the workers have ended")
        await asyncio.sleep(0.01)
