"""Resets the versions of stored orders, so that the next document of each is stored, whatever its version."""

from collections.abc import Sequence

from ingest.store.pool import Pool

_RESET = "UPDATE orders SET version = 'epoch' WHERE order_id = ANY ($1::text[]) RETURNING order_id"


async def reset_versions(pool: Pool, order_ids: Sequence[str]) -> int:
    """Reset them, committed on return; returns how many of the orders are stored.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used now; calling again is safe.
    """
    return len(await pool.fetch(_RESET, sorted(order_ids)))
