"""Resets the versions of stored orders, so that the next document of each is stored regardless of its version."""

from collections.abc import Sequence

from ingest.domain.source_name import UNNAMED
from ingest.store.connections.pool import Pool

_RESET = "UPDATE orders SET version = 'epoch' WHERE source = $1 AND order_id = ANY ($2::text[]) RETURNING order_id"


async def reset_versions(pool: Pool, order_ids: Sequence[str], source: str = UNNAMED) -> int:
    """Reset the versions of these orders of one source, committed on return. Returns how many of them are stored.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used now. Calling again is safe.
    """
    return len(await pool.fetch(_RESET, source, sorted(order_ids)))
