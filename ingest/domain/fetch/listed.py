"""Orders in the lists of a shop, which are read page by page for polling, backfills and reconciliation."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Protocol

import msgspec

from ingest.domain.errors import ListFault

# Pages of one reading. A list that never ends must not be read indefinitely.
_MOST_PAGES = 100_000


class ListedOrder(msgspec.Struct, frozen=True, gc=False):
    """One element of a list.

    Attributes:
        order_id: ID of the order.
        updated_at: time of its last change, or None if the list does not contain it.
        document: the whole document of the order, if the list contains whole documents.
        amount: total amount of the order, None if the list does not contain it, or NaN if it cannot be read.
    """

    order_id: str
    updated_at: datetime | None = None
    document: bytes | None = None
    amount: Decimal | None = None


class ListedPage(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        orders: on the page.
        next: cursor of the next page, or None for the last page. It can be stored, to continue after a restart.
        sent_at: time of the response by the shop's clock, or None if the shop sends none.
        skipped: number of elements without a usable order ID.
        read_until: all orders of the period that changed before this time were on this page or the pages before. None if unknown.
    """

    orders: Sequence[ListedOrder]
    next: str | None = None
    sent_at: datetime | None = None
    skipped: int = 0
    read_until: datetime | None = None


class OrderList(Protocol):
    """The list of a source, implemented by `ingest.upstream.lists`."""

    async def page(self, since: datetime, until: datetime | None, cursor: str | None) -> ListedPage:
        """Return a page of the orders that changed from `since` until `until`, both inclusive.

        The list may contain other orders, and one order several times. The caller checks their times.

        Args:
            since: start of the period. The same for all pages of one reading, as is `until`.
            until: its end, or None for now.
            cursor: from the page before. None for the first page.

        Raises:
            Fault: the page cannot be fetched, or is no page of the list.
        """


async def pages_of(
    orders: OrderList, since: datetime, until: datetime | None, cursor: str | None = None
) -> AsyncIterator[ListedPage]:
    """Yield the pages from a cursor on, or from the first one. For the arguments, see `OrderList.page`.

    Raises:
        Fault: as `OrderList.page`, or the pages of the list repeat.
    """
    # Cursors may have several KiB.
    seen = {hash(cursor)}
    while True:
        page = await orders.page(since, until, cursor)
        yield page
        cursor = page.next
        if cursor is None:
            return
        if hash(cursor) in seen or len(seen) == _MOST_PAGES:
            raise ListFault(f"the pages of the list repeat, or are more than {_MOST_PAGES:,}")
        seen.add(hash(cursor))
