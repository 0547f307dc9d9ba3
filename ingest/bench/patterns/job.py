"""The handling of one order in all patterns, with the same response, decoder, row and statement.

Only the concurrency differs. A program reads `INGEST_UPSTREAM_URL`, `INGEST_POSTGRES_DSN` and, if it uses a queue,
`INGEST_REDIS_URL`. Its argument is a file with an order ID on each line:

    python -m ingest.bench.patterns.gather ids.txt
"""

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.store.orders.columns import SENT, made_from, named

TIMEOUT = 30.0
"""Seconds for one request, as in the service."""


def _insert(parameters: Iterable[str]) -> str:
    """The statement that inserts a row. Existing rows stay."""
    values = ", ".join(
        f"{parameter}::{column.argument_type} AS {column.name}"
        for parameter, column in zip(parameters, SENT, strict=True)
    )
    return f"""
INSERT INTO orders ({named("{}")})
{made_from(f"SELECT '' AS source, {values}")}
ON CONFLICT (source, order_id) DO NOTHING
"""


INSERT_ASYNCPG = _insert(f"${number}" for number in range(1, len(SENT) + 1))
INSERT_PSYCOPG = _insert(["%s"] * len(SENT))


def order_ids() -> list[str]:
    """The orders to fetch."""
    return Path(sys.argv[1]).read_text().split()


def url_of(order_id: str) -> str:
    """The URL of an order."""
    return os.environ["INGEST_UPSTREAM_URL"].replace("{order_id}", order_id)


def postgres_dsn() -> str:
    """The DSN of PostgreSQL."""
    return os.environ["INGEST_POSTGRES_DSN"]


def redis_url() -> str:
    """The URL of Redis."""
    return os.environ["INGEST_REDIS_URL"]


def row_of(body: bytes, order_id: str) -> list[Any]:
    """The values for an INSERT, from the API's response."""
    now = datetime.now(UTC)
    row = OrderRow.of(decode_order(body, order_id), now, 1, now.timestamp())
    return [getattr(row, column.name) for column in SENT]


def log_failure(order_id: str, error: BaseException) -> None:
    """Log an order that was not stored."""
    sys.stderr.write(f"{order_id}: {error!r}\n")
