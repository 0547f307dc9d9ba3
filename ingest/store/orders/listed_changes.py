"""Finds the orders of a shop's list that are missing or older in the table `orders`."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from ingest.domain.fetch.list_clock import ListClock, times_of
from ingest.domain.fetch.listed import ListedOrder
from ingest.store.connections.statements import Fetches

# A change within the same moment as a fetch counts as newer.
_MOMENT = timedelta(seconds=2)
VERSION = "CASE WHEN o.updated_at IS NULL THEN o.version - $3::interval ELSE greatest(o.version, o.updated_at) END"
"""The version of a row `o` in the time of its shop, given `fetched_ahead`.

The version of an order without its own `updated_at` is the time of its fetch by our clock. An `updated_at` that is too far in the future is
no version.
"""
# An order that was fetched within the unit of time of its version may have changed once more in it.
_CHANGED = f"""
SELECT listed.order_id, o.order_id IS NULL AS is_missing
FROM unnest($2::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[])
    AS listed (order_id, updated_at, ends_at, again_before)
LEFT JOIN orders AS o ON o.source = $1 AND o.order_id = listed.order_id
WHERE NOT EXISTS (SELECT FROM erased_orders AS e WHERE e.source = $1 AND e.order_id = listed.order_id)
  AND (o.order_id IS NULL OR listed.updated_at IS NULL OR listed.updated_at > {VERSION}
       OR (o.updated_at IS NOT NULL AND listed.ends_at > {VERSION} AND o.fetched_at - $4::interval < listed.again_before))
"""  # noqa: S608  our own expression


def fetched_ahead(clock: ListClock) -> timedelta:
    """Return how far the time of a fetch, by our clock, is ahead of changes that count as older, by the shop's clock."""
    return clock.ahead + _MOMENT


async def changed_orders(
    connection: Fetches, source: str, orders: Sequence[ListedOrder], clock: ListClock
) -> Mapping[str, bool]:
    """Return the orders that are not stored, or older than listed, or whose time is not listed. Erased orders are omitted.

    An order with the listed time is included as well if it may have changed after it was fetched without another time.

    The values show whether an order is not stored.

    Args:
        connection: runs the statement.
        source: name of the source.
        orders: elements of its list.
        clock: of the list.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    if not orders:
        return {}
    ids = [order.order_id for order in orders]
    arguments = (ids, fetched_ahead(clock), clock.ahead, *times_of(orders, clock))
    found = await connection.fetch(_CHANGED, source, *arguments)
    return {record["order_id"]: record["is_missing"] for record in found}
