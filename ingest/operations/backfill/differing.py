"""Finds the orders of a page that are missing or outdated in the table `orders`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.backfill import BackfillRequest
from ingest.operations.list_pages import Page, utc_now, within
from ingest.store.connections.statements import Fetches
from ingest.store.orders.listed_changes import changed_orders


@dataclass(frozen=True, slots=True)
class Differing:
    """The orders of a page that are not stored as listed.

    Attributes:
        orders: missing and outdated ones.
        listed: orders of the period on the page.
        missing: orders without a row. Erased orders are not missing.
        outdated: orders with an older row, or whose time is not listed.
        missing_or_skipped: missing ones of which the list does not show whether the mapping skips them.
    """

    orders: Sequence[ListedOrder]
    listed: int
    missing: int
    outdated: int
    missing_or_skipped: int = 0


async def differing(
    connection: Fetches, source: str, listed: Page, request: BackfillRequest, unit: timedelta
) -> Differing:
    """Compare the new orders of a page with the stored ones.

    Args:
        connection: to PostgreSQL.
        source: name of the source.
        listed: the page.
        request: with the period.
        unit: how exactly the list writes times.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    page, new = listed
    orders = within(new, request.since - unit, request.until)
    if not orders:
        return Differing((), 0, 0, 0)
    now = utc_now()
    sent_at = page.sent_at or now
    changed = await changed_orders(connection, source, orders, ListClock(sent_at, now - sent_at, unit))
    missing = sum(changed.values())
    found = [order for order in orders if order.order_id in changed]
    undecided = {order.order_id for order in found if changed[order.order_id] and order.is_skipped is None}
    return Differing(found, len(orders), missing, len(changed) - missing, len(undecided))
