"""Reads a summary of the orders table."""

from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.store.connection import connect
from ingest.store.schema import refuse_closed_schema
from ingest.store.translation import translated


@dataclass(frozen=True, slots=True)
class Overview:
    """A summary of the orders table.

    Attributes:
        last_ingested_at: time of the last change of a row in UTC, or None without rows.
        is_migrated: whether our tables exist in the database.
    """

    stored: int
    last_ingested_at: datetime | None
    is_migrated: bool = True


async def overview(dsn: str) -> Overview:
    """Count the orders, 0 in a database without our tables.

    Raises:
        StoreUnavailable: PostgreSQL cannot be reached.
        SchemaMismatch: our role may not use the tables' schema.
    """
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction(readonly=True):
                if not await connection.fetchval("SELECT to_regclass('orders') IS NOT NULL"):
                    await refuse_closed_schema(connection)
                    return Overview(0, None, is_migrated=False)
                row = await connection.fetchrow("SELECT count(*) AS stored, max(ingested_at) AS last FROM orders")
    assert row is not None  # noqa: S101  an aggregate without GROUP BY has a row
    return Overview(row["stored"], row["last"] and row["last"].astimezone(UTC))
