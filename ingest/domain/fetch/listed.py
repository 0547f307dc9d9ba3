"""Orders in the lists of a shop, which are read page by page for polling, backfills and reconciliation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec


class ListedOrder(msgspec.Struct, frozen=True, gc=False):
    """One element of a list.

    Attributes:
        order_id: ID of the order.
        updated_at: time of its last change, or None if the list does not contain it.
        document: the whole document of the order, if the list contains whole documents.
    """

    order_id: str
    updated_at: datetime | None = None
    document: bytes | None = None


class ListedPage(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        orders: on the page.
        next: cursor of the next page, or None for the last page. It can be stored, to continue after a restart.
    """

    orders: Sequence[ListedOrder]
    next: str | None = None


class OrderList(Protocol):
    """The list of a source, implemented by `ingest.upstream.lists`."""

    async def page(self, since: datetime, until: datetime | None, cursor: str | None) -> ListedPage:
        """Return a page of the orders that changed from `since` until `until`, both inclusive.

        The list may contain other orders. The caller checks their times.

        Args:
            since: start of the period.
            until: its end, or None for now.
            cursor: from the page before. None for the first page.

        Raises:
            Fault: the page cannot be fetched, or is no page of the list.
        """
