"""What became of the orders, from PostgreSQL and Redis themselves, when the contender has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from ingest.domain.comparison import StoredOrder, differences
from ingest.queue.connection import control_client
from ingest.queue.scanner import QueueScanner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingest.bench.stage import Stage

_COMPARED = 1000
_PAGE = 1000
_CONTENT = """
SELECT order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines
FROM orders WHERE order_id = ANY ($1)
"""
_COMMITTED = "pg_xact_commit_timestamp(xmin)"
_INGESTED = "ingested_at"


@dataclass(frozen=True, slots=True)
class Row:
    """When an order went where; Unix time."""

    enqueued: float
    asked: float
    committed: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What is there at the end.

    Attributes:
        rows: the moments of each order that has a row.
        commit_clock: what the moments of the commits are.
        queued: of the enqueued without a row, how many are in the queue.
        dead: of the rest, how many are dead letters.
        lost: of the rest.
        compared: rows compared with the documents that the API serves.
        wrong: how many of them differ.
    """

    rows: Mapping[str, Row]
    commit_clock: str
    queued: int
    dead: int
    lost: int
    compared: int
    wrong: int


def find(stage: Stage, group: str, enqueued: Sequence[str], documents: Mapping[str, bytes]) -> Findings:
    """Look for every enqueued order; `documents` are those of bundled orders, a sample of which is compared."""
    return asyncio.run(_find(stage, group, enqueued, documents))


async def _find(stage: Stage, group: str, enqueued: Sequence[str], documents: Mapping[str, bytes]) -> Findings:
    bundled = [order_id for order_id in enqueued if order_id in documents]
    sample = bundled[:: max(1, len(bundled) // _COMPARED)]
    connection = await asyncpg.connect(stage.postgres_dsn)
    try:
        is_tracked = await connection.fetchval("SELECT current_setting('track_commit_timestamp')::boolean")
        clock = _COMMITTED if is_tracked else _INGESTED
        rows = await _rows(connection, clock)
        stored = [StoredOrder(**row) for row in await connection.fetch(_CONTENT, sample)]
    finally:
        await connection.close()
    missing = set(enqueued) - rows.keys()
    queued, dead = await _in_redis(stage, group, missing) if missing else (set[str](), set[str]())
    return Findings(
        rows=rows,
        commit_clock=clock,
        queued=len(queued),
        dead=len(dead - queued),
        lost=len(missing - queued - dead),
        compared=len(stored),
        wrong=sum(bool(differences(row, documents[row.order_id])) for row in stored),
    )


async def _rows(connection: asyncpg.Connection, clock: str) -> dict[str, Row]:
    query = f"""
        SELECT order_id, extract(epoch FROM enqueued_at)::float8 AS enqueued, extract(epoch FROM fetched_at)::float8 AS asked,
               extract(epoch FROM coalesce({clock}, ingested_at))::float8 AS committed
        FROM orders
    """  # noqa: S608  one of two constants
    async with connection.transaction(readonly=True):
        return {
            row["order_id"]: Row(row["enqueued"], row["asked"], row["committed"])
            async for row in connection.cursor(query, prefetch=_PAGE)
        }


async def _in_redis(stage: Stage, group: str, missing: set[str]) -> tuple[set[str], set[str]]:
    """Those of the missing that are in the queue, and those that are dead letters."""
    async with control_client(stage.redis_url) as client:
        scanner = QueueScanner(client, stage.stream, group)
        queued = {sighting.order_id async for page in scanner.queued() for sighting in page}
        dead = {sighting.order_id async for page in scanner.dead() for sighting in page}
    return missing & queued, missing & dead
