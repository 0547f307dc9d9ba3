"""Finds the orders of a page that are not stored as listed."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.domain.fetch.listed import ListedOrder
from ingest.store.backfills import Fetches
from ingest.store.orders.stored_versions import StoredVersion, stored_versions


@dataclass(frozen=True, slots=True)
class Differing:
    """The orders of a page that are not stored as listed.

    Attributes:
        missing: orders without a row. Erased orders are not missing.
        outdated: orders with an older row.
    """

    missing: Sequence[ListedOrder]
    outdated: Sequence[ListedOrder]


async def compare(connection: Fetches, source: str, orders: Sequence[ListedOrder]) -> Differing:
    """Compare listed orders with the stored ones.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    stored = await stored_versions(connection, [order.order_id for order in orders], source)
    outdated = [order for order in orders if is_outdated(order, stored[order.order_id])]
    return Differing([order for order in orders if _is_missing(stored[order.order_id])], outdated)


def _is_missing(stored: StoredVersion) -> bool:
    return stored.version is None and not stored.is_erased


def is_outdated(order: ListedOrder, stored: StoredVersion) -> bool:
    """Whether an older version is stored. An order whose time is not listed cannot be compared."""
    return order.updated_at is not None and stored.version is not None and stored.version < order.updated_at
