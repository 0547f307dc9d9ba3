"""Orders in the lists of a shop, which are read page by page for polling, backfills and reconciliation."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol

import msgspec

SECOND = timedelta(seconds=1)


class ListedOrder(msgspec.Struct, frozen=True, gc=False):
    """One element of a list.

    Attributes:
        order_id: ID of the order.
        updated_at: time of its last change, or None if the list does not contain it.
        document: the whole document of the order, if the list contains whole documents.
        amount: total amount of the order, None if the list does not contain it, or NaN if it cannot be read.
        is_skipped: whether the mapping skips the document, so that it is no order, or None if the list does not show it.
    """

    order_id: str
    updated_at: datetime | None = None
    document: bytes | None = None
    amount: Decimal | None = None
    is_skipped: bool | None = False

    def is_within(self, since: datetime, until: datetime | None = None) -> bool:
        """Whether the order has changed in the period, or its time is not listed."""
        return self.updated_at is None or (since <= self.updated_at and (until is None or self.updated_at <= until))


class ListShape(msgspec.Struct, frozen=True):
    """The properties of a list on which reading it depends.

    Attributes:
        has_pages: whether it has more than one page.
        is_numbered: whether its pages have numbers, of pages or of elements. Otherwise, the shop names the next page.
        counts_elements: whether these are numbers of elements.
        size: elements of a full page. 0 if unknown.
        is_divisible: whether smaller pages can be requested.
        has_times: whether its elements contain the times of the last changes.
        is_sorted: whether it is sorted by the time of the last change, oldest first.
        unit: how exactly the start of a period is requested.
        settled_after: a change is at its place in the list after this time.
    """

    has_pages: bool = True
    is_numbered: bool = False
    counts_elements: bool = False
    size: int = 0
    is_divisible: bool = False
    has_times: bool = False
    is_sorted: bool = False
    unit: timedelta = SECOND
    settled_after: timedelta = timedelta(minutes=1)


class PageRequest(msgspec.Struct, frozen=True):
    """A request for one page.

    Attributes:
        since: start of the period, inclusive.
        until: its end, inclusive, or None for now.
        cursor: of the shop, from the page before. None for the first page, and in a list with numbers.
        number: of the page, or of its first element, from 0.
        size: elements of a page, if it is smaller than usual.
    """

    since: datetime
    until: datetime | None = None
    cursor: str | None = None
    number: int = 0
    size: int | None = None


class ListedPage(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        orders: elements with a usable order ID, in the order of the list.
        count: number of all elements.
        next: the shop's cursor of the next page, or None.
        has_more: the shop's own word on whether another page follows. None if it says nothing.
        total: number of elements on all pages, by the shop.
        is_counted: whether the shop's cursor is a number that counts up, which does not move with the orders.
        sent_at: time of the response by the shop's clock, or None if the shop sends none.
        unusable: where the elements without a usable order ID are, and those that are not JSON.
        unread_time: an example of a time that cannot be read. Empty if all can.
    """

    orders: Sequence[ListedOrder]
    count: int = 0
    next: str | None = None
    has_more: bool | None = None
    total: int | None = None
    is_counted: bool = False
    sent_at: datetime | None = None
    unusable: Sequence[str] = ()
    unread_time: str = ""


class OrderList(Protocol):
    """The list of a source, implemented by `ingest.upstream.lists`."""

    @property
    def shape(self) -> ListShape:
        """The properties of the list."""

    async def page(self, request: PageRequest) -> ListedPage:
        """Return a page of the orders that changed within a period.

        The list may contain other orders, and one order several times. The caller checks their times.

        Raises:
            Fault: the page cannot be fetched, or is no page of the list.
        """
