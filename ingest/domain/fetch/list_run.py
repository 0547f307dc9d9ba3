"""Pages of a list that are requested with the same start of the period, and whether one of them is the last. Pure."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ingest.domain.errors import ListFault
from ingest.domain.fetch.list_places import ListPlace, SeenOrders, times_from
from ingest.domain.fetch.listed import SECOND, ListedOrder, ListedPage, ListShape

# Consecutive pages without progress. Some shops send empty pages before others.
_MOST_IDLE, _MOST_EMPTY = 3, 100


class ListRun(msgspec.Struct):
    """Pages with the same start of the period.

    Attributes:
        passes: how often they are read, with this one.
        pages: with elements before the end, in this pass.
        received: different orders in this pass, with those that cannot be read.
        found: orders of the period that only this pass has shown.
        idle: consecutive pages without an order that this pass has not shown.
        covered: following pages whose orders may have been on the parts of a page before.
        is_counted: whether numbers have led to a page.
        last_ids: the orders of the last page, or part of a page, with orders.
        repeats: consecutive pages or parts with these orders before it.
    """

    since: datetime
    cursor: str | None = None
    number: int = 0
    passes: int = 1
    pages: int = 0
    received: int = 0
    found: int = 0
    idle: int = 0
    covered: int = 0
    is_counted: bool = False
    last_ids: tuple[str, ...] = ()
    repeats: int = 0
    seen: SeenOrders = msgspec.field(default_factory=SeenOrders)

    def note(self, page: ListedPage, *, has_progress: bool) -> None:
        """Note a page, and whether this pass had not shown all of its orders."""
        self.idle = 0 if has_progress or self.covered > 0 else self.idle + 1
        self.covered -= 1
        self.note_ids(page)
        # All orders of a page may be left out of it.
        self.pages += bool(page.count or page.total)

    def note_ids(self, page: ListedPage) -> None:
        """Note the orders of a page, or of a part of a page."""
        ids = tuple(order.order_id for order in page.orders)
        self.repeats = self.repeats + 1 if ids and ids == self.last_ids else 0
        self.last_ids = ids or self.last_ids

    def step(self, page: ListedPage, shape: ListShape) -> None:
        """Go to the page after this one."""
        if shape.is_numbered:
            self.number += (page.count or 1) if shape.counts_elements else 1
        self.cursor = page.next

    def may_begin_at(self, settled: datetime, shape: ListShape, page: ListedPage, most: int) -> bool:
        """Whether the page after this one can be requested from a time on which its elements agree. The largest page has `most` elements."""
        if settled <= self.since:
            return False
        # A page that is shorter than another one is probably the last one.
        full = most if self.number else max(most, shape.size)
        if page.has_more is None and page.total is None and page.count < full:
            return False
        return 2 * len(times_from(settled - SECOND - shape.unit, page.orders)) <= page.count

    def may_have_moved(self, shape: ListShape, again_from: datetime | None) -> bool:
        """Whether orders may have moved between two requests. Another reading begins at `again_from`, unless this is the only one."""
        if self.pages <= 1 or not self.is_counted or (self.passes > 1 and not self.found):
            return False
        # In a list that is sorted by anything else than the time of the last change, no order moves forward.
        return again_from is None or (shape.is_sorted and self.since < again_from)


def require_progress(idle: int, page: ListedPage) -> None:
    """Raise `ListFault` if the list does not end, after this number of consecutive pages or parts without progress. `page` is the last."""
    if idle >= (_MOST_IDLE if page.count else _MOST_EMPTY):
        raise ListFault(f"the list does not end: {idle} pages in a row contain no order that it has not listed before")


def continued_run(shape: ListShape, place: ListPlace) -> ListRun:
    """Return the run at whose place another process has ended. A sorted list is read from its beginning, unless a time was tried."""
    run = ListRun(place.since, place.cursor)
    if place.number and (place.begins_at is not None or not shape.is_sorted):
        # The pages before may have moved since then.
        run.number, run.pages, run.is_counted = place.number, 1, True
        run.received = place.number * (1 if shape.counts_elements else shape.size)
    return run


class PageSizes(msgspec.Struct):
    """The sizes of pages. The last page may be shorter, and is not counted until another one follows.

    Attributes:
        pages: that another one follows.
        elements: of these pages.
        most: elements of the largest page.
        last: elements of the last page.
    """

    pages: int = 0
    elements: int = 0
    most: int = 0
    last: int = 0

    def note(self, count: int) -> None:
        """Note a page with elements."""
        self.pages += self.last > 0
        self.elements += self.last
        self.most = max(self.most, count)
        self.last = count

    @property
    def left_out(self) -> int:
        """The number of elements that are missing on pages that are not the last one."""
        return max(0, self.pages * self.most - self.elements)

    def shorter_than(self, size: int) -> int:
        """The number of elements of the largest page, if all pages have less than this size. Otherwise 0."""
        return self.most if self.pages and self.most < size else 0


def is_last(shape: ListShape, page: ListedPage, run: ListRun, most: int) -> bool:
    """Whether no page follows this one of a run, by the shop's own word or an empty page. The largest page has `most` elements.

    Raises:
        ListFault: the page contradicts itself.
    """
    if not shape.has_pages:
        return True
    if not shape.is_numbered:
        if page.has_more and page.next is None:
            raise ListFault("another page follows by the response, which does not name it")
        if page.next is not None and page.next == run.cursor:
            raise ListFault("the pages of the list repeat")
        return page.next is None or page.has_more is False
    if page.has_more is not None:
        return not page.has_more
    if page.total is None:
        # The orders of the first page may have been left out of it.
        return not page.count and run.number > 0
    # By the places of the pages, because orders may be left out of them. After the last page, Magento repeats it.
    size = max(most, 1)
    if run.repeats:
        # Orders may be left out of each page before.
        size = max(size, shape.size)
    return (run.number if shape.counts_elements else run.number * size) + size >= page.total


def continues(page: ListedPage, new: Sequence[ListedOrder], latest: datetime) -> bool:
    """Whether a page that was requested from a time begins with an order that is known with the same time."""
    for order in page.orders:
        if order.updated_at is not None and order.updated_at <= latest:
            return all(order is not each for each in new)
    return False
