"""Counts what is stored, lost, written twice or wrong, from PostgreSQL and Redis themselves.

It shares no code with what takes in, fetches and stores orders: a mistake there cannot hide itself here. Ask it when the
workers have ended. (`ingest.operations.reconcile` is for queues at work, and for any number of orders.)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from ingest.demo.run.errors import DemoFailed
from ingest.domain.comparison import StoredOrder, differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    import redis

STREAM, RETRY, RETRY_ENTRIES, DEAD = (
    f"ingest:{{orders}}:{part}" for part in ("stream", "retry", "retry-entries", "dead")
)
_PAGE = 1000
_CLIENTS_LEAVE = 15.0  # seconds that PostgreSQL may take to notice that the workers have gone

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
_CONTENT = """
SELECT order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines
FROM orders WHERE order_id = ANY ($1)
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
class Findings:
    """What became of the enqueued orders.

    Attributes:
        stored: of the enqueued, how many have a row.
        unexpected: rows that nobody enqueued.
        dead: of the rest, how many are dead letters.
        unfinished: of the rest, how many are still queued or wait for a retry.
        lost: of the rest, how many are nowhere.
        written_twice: inserts and updates beyond one for each row, but for one that has only confirmed it.
        compared: rows whose content was compared with the document that the API serves.
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


def is_drained(queue: redis.Redis) -> bool:
    """Whether nothing waits or is in work: the stream and the retry set are empty at one moment."""
    with queue.pipeline(transaction=True) as pipe:
        pipe.xlen(STREAM)
        pipe.zcard(RETRY)
        return not any(pipe.execute())


def audit(dsn: str, queue: redis.Redis, enqueued: Sequence[str], documents: Mapping[str, bytes]) -> Findings:
    """Look for every enqueued order, and at every row; `documents` are those to compare with, by ID."""
    return asyncio.run(_audit(dsn, queue, enqueued, documents))


async def _audit(dsn: str, queue: redis.Redis, enqueued: Sequence[str], documents: Mapping[str, bytes]) -> Findings:
    # Nothing of the user's PG… environment: this server speaks no TLS.
    connection = await asyncpg.connect(dsn, ssl=False)
    try:
        await _until_alone(connection)
        async with connection.transaction(readonly=True, isolation="repeatable_read"):
            writes = await connection.fetchval(_WRITES)
            confirmed = await connection.fetchval(_CONFIRMED)
            last = await connection.fetchval("SELECT max(ingested_at) FROM orders")
            examples = {row["order_id"]: Example(**row) for row in await connection.fetch(_EXAMPLES)}
            rows = {row["order_id"] async for row in connection.cursor("SELECT order_id FROM orders", prefetch=_PAGE)}
            compared, wrong = await _compare(connection, documents)
    finally:
        await connection.close()
    expected = set(enqueued)
    missing = expected - rows
    unfinished = missing & _queued(queue)
    dead = (missing - unfinished) & _ids_in_stream(queue, DEAD)
    return Findings(
        stored=len(expected & rows),
        unexpected=len(rows - expected),
        dead=len(dead),
        unfinished=len(unfinished),
        lost=len(missing - unfinished - dead),
        written_twice=max(0, writes - len(rows) - confirmed),
        compared=compared,
        wrong=wrong,
        last_commit=last.timestamp() if last else None,
        examples=list(examples.values()),
        redis_peak=int(queue.info("memory")["used_memory_peak"]),
    )


async def _until_alone(connection: Any) -> None:
    """Wait until all other clients' server processes have ended, and so reported their counts."""
    deadline = monotonic() + _CLIENTS_LEAVE
    while others := await connection.fetchval(_OTHER_CLIENTS):
        if monotonic() > deadline:
            raise DemoFailed(f"{others} connections to PostgreSQL are still open though the workers have ended")
        await asyncio.sleep(0.01)


async def _compare(connection: Any, documents: Mapping[str, bytes]) -> tuple[int, int]:
    """How many rows there are of these documents, and how many differ from them."""
    compared = wrong = 0
    async for row in connection.cursor(_CONTENT, list(documents), prefetch=_PAGE):
        compared += 1
        wrong += bool(differences(StoredOrder(**row), documents[row["order_id"]]))
    return compared, wrong


def _queued(queue: redis.Redis) -> set[str]:
    """The IDs in the stream, pending ones included, and in the retry set."""
    packed: Any = queue.hvals(RETRY_ENTRIES)
    retried = (msgspec.msgpack.decode(fields, type=list[str]) for fields in packed)
    return _ids_in_stream(queue, STREAM) | {fields[fields.index("order_id") + 1] for fields in retried}


def _ids_in_stream(queue: redis.Redis, key: str) -> set[str]:
    found: set[str] = set()
    after = "-"
    while True:
        page: Any = queue.xrange(key, min=after, count=_PAGE)
        if not page:
            return found
        found |= {fields[b"order_id"].decode() for _, fields in page if b"order_id" in fields}
        after = f"({page[-1][0].decode()}"
