"""Reads the versions of stored orders, to compare them with a shop's list."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from ingest.domain.source_name import UNNAMED
from ingest.store.backfills import Fetches

# An order whose `updated_at` is too far in the future has the time of its fetch as version.
_VERSIONS = """
SELECT wanted.order_id, greatest(o.version, o.updated_at) AS version, e.order_id IS NOT NULL AS is_erased
FROM unnest($2::text[]) AS wanted (order_id)
LEFT JOIN orders AS o ON o.source = $1 AND o.order_id = wanted.order_id
LEFT JOIN erased_orders AS e ON e.source = $1 AND e.order_id = wanted.order_id
"""


class StoredVersion(msgspec.Struct, frozen=True, gc=False):
    """The version of a stored order.

    Attributes:
        version: None if the order is not stored.
        is_erased: whether the order was erased, so that it must not be stored again.
    """

    version: datetime | None
    is_erased: bool


async def stored_versions(
    connection: Fetches, order_ids: Sequence[str], source: str = UNNAMED
) -> Mapping[str, StoredVersion]:
    """Return the version of each of these orders of one source.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    records = await connection.fetch(_VERSIONS, source, list(order_ids))
    return {record["order_id"]: StoredVersion(record["version"], record["is_erased"]) for record in records}
