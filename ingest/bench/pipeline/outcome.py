"""Reads the outcome of the orders from PostgreSQL and Redis after the contender has ended."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

from ingest.bench.stage import Stage
from ingest.domain.orders.reconciliation import ReconciliationReport
from ingest.operations.reconcile import Backends, reconcile

_COMPARED = 1000
_COMMITTED: LiteralString = "pg_xact_commit_timestamp(xmin)"
_INGESTED: LiteralString = "ingested_at"
_ROWS: LiteralString = """
SELECT order_id, extract(epoch FROM enqueued_at)::float8, extract(epoch FROM fetched_at)::float8,
       extract(epoch FROM coalesce({}, ingested_at))::float8
FROM orders
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Unix times at which an order was announced, requested and committed."""

    enqueued: float
    asked: float
    committed: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state at the end of a run.

    Attributes:
        rows: the times of each order with a row.
        commit_clock: the source of the commit times.
        report: the locations of the announced orders.
        sample: a report for up to a thousand bundled orders, compared with the documents that the API serves.
    """

    rows: Mapping[str, Row]
    commit_clock: str
    report: ReconciliationReport
    sample: ReconciliationReport

    @property
    def last_commit(self) -> float | None:
        """Unix time of the last commit, or None without a row."""
        return max((row.committed for row in self.rows.values()), default=None)


def find_outcome(stage: Stage, group: str, enqueued: Sequence[str], documents: Mapping[str, bytes]) -> Outcome:
    """Find every announced order. `documents` are the documents of the bundled orders."""
    bundled = [order_id for order_id in enqueued if order_id in documents]
    sample = {order_id: documents[order_id] for order_id in bundled[:: max(1, len(bundled) // _COMPARED)]}
    backends = Backends(stage.redis_url, stage.postgres_dsn, stage.stream, group)
    is_tracked = stage.sql("SELECT current_setting('track_commit_timestamp')::boolean")[0][0]
    rows = stage.sql(_ROWS.format(_COMMITTED) if is_tracked else _ROWS.format(_INGESTED))
    return Outcome(
        rows={order_id: Row(*times) for order_id, *times in rows},
        commit_clock=_COMMITTED if is_tracked else _INGESTED,
        report=asyncio.run(reconcile(enqueued, backends)),
        sample=asyncio.run(reconcile(sample, backends, expected=sample)),
    )
