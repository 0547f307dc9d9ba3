"""Counts what the demo has stored, lost, written twice or stored wrong, when the workers have ended.

Orders are looked for by `ingest.operations.reconcile`; what only PostgreSQL and Redis know (writes, times, memory) is read here.
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
_CLIENTS_LEAVE = 15.0  # seconds that PostgreSQL may take to notice that the workers have ended

# Server processes report their counts when they end; those of the workers have. An insert or update that was rolled
# back counts too, so this may show too many, never too few. What a concurrent insert of the same key made and took
# back counts as inserted and as deleted; nothing else here deletes. An upsert whose WHERE is false counts nothing.
_WRITES = "SELECT n_tup_ins + n_tup_upd - n_tup_del FROM pg_stat_user_tables WHERE relid = 'orders'::regclass"
# A later fetch of the same content is an update, too, but of its time alone: the row is older than its document then.
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
    """One row as read back; `placed_at` in UTC."""

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
        stored: of the enqueued, how many have a row.
        unexpected: rows and dead letters of orders that were not enqueued.
        dead: of the rest, how many are dead letters.
        unfinished: of the rest, how many are still queued or wait for a retry.
        lost: of the rest, how many are nowhere.
        written_twice: inserts and updates beyond one for each row, except those that only confirmed a row.
        compared: orders whose content was compared with the document that the API serves.
        wrong: how many of them differ.
        last_commit: Unix time of the last write, by PostgreSQL's clock; None without rows.
        examples: a few rows.
        redis_peak: most bytes that Redis' data took.
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
    """What PostgreSQL knows of the table of orders."""

    written_twice: int
    last_commit: float | None
    examples: list[Example]


def is_drained(queue: redis.Redis) -> bool:
    """Whether nothing is queued or in flight: the stream and the retry set are empty at one moment."""
    keys = Keys.of(STREAM)
    with queue.pipeline(transaction=True) as pipe:
        pipe.xlen(keys.stream)
        pipe.zcard(keys.retry)
        return not any(pipe.execute())


async def check(
    backends: Backends, queue: redis.Redis, enqueued: Sequence[str], documents: Mapping[str, bytes]
) -> Result:
    """Look for every enqueued order, and at every row; `documents` are those to compare with, by ID."""
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
    """Wait until all other clients' server processes have ended, and so reported their counts."""
    deadline = monotonic() + _CLIENTS_LEAVE
    while others := await connection.fetchval(_OTHER_CLIENTS):
        if monotonic() > deadline:
            raise LabFailed(f"{others} connections to PostgreSQL are still open though the workers have ended")
        await asyncio.sleep(0.01)
