"""What every pattern does with an order: the same answer decoded by the same code, into the same row by the same statement.

Only the concurrency differs. A program is told what to do by `INGEST_UPSTREAM_URL`, `INGEST_POSTGRES_DSN` and, where it
has a queue, `INGEST_REDIS_URL`; its argument is a file with an order ID on each line:

    python -m ingest.bench.patterns.gather ids.txt
"""

import os
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from ingest.domain.order import decode_order

Value = str | int | Decimal | datetime | None


TIMEOUT = 30.0
"""Seconds for one request, as the service allows."""

_INSERT = """
INSERT INTO orders (order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines,
                    version, fetched_at, attempts, enqueued_at, ingested_at)
VALUES ({}, now(), now(), 1, now(), clock_timestamp())
ON CONFLICT (order_id) DO NOTHING
"""
_COLUMNS = 10

INSERT_ASYNCPG = _INSERT.format(", ".join(f"${number}" for number in range(1, _COLUMNS + 1)))
INSERT_PSYCOPG = _INSERT.format(", ".join(["%s"] * _COLUMNS))


def order_ids() -> list[str]:
    """The orders to fetch."""
    return Path(sys.argv[1]).read_text().split()


def url_of(order_id: str) -> str:
    """Where an order is fetched."""
    return os.environ["INGEST_UPSTREAM_URL"].replace("{order_id}", order_id)


def postgres_dsn() -> str:
    """Where rows are stored."""
    return os.environ["INGEST_POSTGRES_DSN"]


def redis_url() -> str:
    """Where the queue is."""
    return os.environ["INGEST_REDIS_URL"]


def row_of(body: bytes, order_id: str) -> list[Value]:
    """The values for an INSERT, from the API's answer."""
    order = decode_order(body, order_id)
    return [
        order.id,
        order.status,
        order.currency,
        order.customer_id,
        order.country,
        order.placed_at,
        order.updated_at,
        len(order.lines),
        order.total,
        order.lines_json().decode(),
    ]


def log_failure(order_id: str, error: BaseException) -> None:
    """Log an order that was not stored."""
    sys.stderr.write(f"{order_id}: {error!r}\n")
