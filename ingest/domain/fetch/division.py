"""Divides a page that cannot be fetched, until the element that breaks it is alone. Pure."""

from datetime import datetime, timedelta

import msgspec

from ingest.domain.fetch.list_run import require_progress
from ingest.domain.fetch.listed import ListedPage, ListShape, PageRequest

# Sizes of the parts. A page with one such element takes about 15 requests.
_SIZES = (25, 5, 1)
# If this number of parts fails one after another, the shop fails, and not an element.
_MOST_FAILURES = 12
# Further times are tried in steps that grow by this factor, up to a century.
_GROWTH, _LONGEST_REACH = 8, timedelta(days=36_525)


class Division(msgspec.Struct):
    """The parts of one page.

    Attributes:
        at: index of the next element.
        end: index after the page.
        size: elements of the next part.
        largest: elements of the first part.
        counts_elements: whether the list numbers elements, and not pages.
        unread: indexes of elements that cannot be fetched, each with the ID of the order before it.
        failures: parts that have failed one after another.
        has_read: whether any part was read.
        last_id: of the last order of the parts so far.
    """

    at: int
    end: int
    size: int
    largest: int
    counts_elements: bool
    unread: list[tuple[int, str]] = msgspec.field(default_factory=list)
    failures: int = 0
    has_read: bool = False
    last_id: str = ""

    def part_of(self, usual: PageRequest) -> PageRequest:
        """Return the request for the next part of a page that is usually requested like this."""
        number = self.at if self.counts_elements else self.at // self.size
        return msgspec.structs.replace(usual, cursor=None, number=number, size=self.size)

    @property
    def is_done(self) -> bool:
        """Whether all parts were read or left out."""
        return self.at >= self.end

    def advance(self, page: ListedPage) -> None:
        """Continue after a part that was read.

        A shop that limits pages begins a part elsewhere. The elements of a part that is shorter than requested are requested one by one.
        """
        self.failures, self.has_read = 0, True
        self.last_id = page.orders[-1].order_id if page.orders else self.last_id
        self.end = self.end if page.total is None else min(self.end, page.total)
        if 0 < page.count < self.size:
            self.size = self.largest = 1
            return
        self.at = self.at + self.size if self.counts_elements else (self.at // self.size + 1) * self.size
        self.size = max(size for size in _SIZES if size <= self.size or (size <= self.largest and self.at % size == 0))

    def fail(self) -> bool:
        """Divide a part that cannot be fetched, or leave out an element. Return False if the shop fails."""
        self.failures += 1
        if self.size == 1:
            self.unread.append((self.at, self.last_id))
            self.at += 1
        else:
            self.size = max(size for size in _SIZES if size < self.size)
        return self.failures < _MOST_FAILURES and (self.has_read or not self.is_done)


def division_of(shape: ListShape, number: int, most: int) -> Division | None:
    """Return the parts of a page, or None if the list has no smaller pages. The largest page so far has `most` elements, or 0 before it."""
    sizes = [size for size in _SIZES if size < (most or shape.size)] or [1]
    if not (shape.is_divisible and shape.is_numbered and shape.size > 1):
        return None
    if shape.counts_elements:
        return Division(number, number + (most or shape.size), sizes[0], sizes[0], counts_elements=True)
    # The shop may serve smaller pages than requested, or leave orders out of them.
    begin = number * min(most or shape.size, shape.size)
    return Division(begin, (number + 1) * shape.size, sizes[0], sizes[0], counts_elements=False)


class CursorDivision(msgspec.Struct):
    """The parts of one page in a list with cursors.

    A cursor leads only to the element that follows it. An element that cannot be fetched is therefore passed by time: a period that
    begins later is tried, until its first order was not seen before. The time is then narrowed down.

    Attributes:
        left: elements of the page that were not read.
        known: a period that begins here begins with known orders.
        low: a period that begins here contains the element.
        unit: how exactly the time is determined.
        until: end of the period, or None.
        is_sorted: whether the list is sorted by time. In another list, an element cannot be passed.
        size: elements of the next part.
        reach: how far the next time is from the one before.
        since: the time that is tried. None while the cursors of the page are followed.
        cursor: of the next page of the tried period.
        empty: pages of this period before it, which contain no order.
        high: a period that begins here does not contain the element. None if unknown.
        failures: parts that have failed one after another.
    """

    left: int
    known: datetime
    low: datetime
    unit: timedelta
    until: datetime | None
    is_sorted: bool
    size: int
    reach: timedelta
    since: datetime | None = None
    cursor: str | None = None
    empty: int = 0
    high: datetime | None = None
    failures: int = 0

    @property
    def is_passed(self) -> bool:
        """Whether the element is between two times that are close enough."""
        return self.high is not None and self.high - self.low <= self.unit

    def fail(self) -> bool:
        """Divide a part that cannot be fetched, or try a later time. Return False if the element cannot be passed."""
        self.failures += 1
        if self.size > 1:
            self.size = max(size for size in _SIZES if size < self.size)
            return True
        is_at_end = self.since is not None and self.since == self.until
        if not self.is_sorted or (self.high is None and (is_at_end or self.failures >= _MOST_FAILURES)):
            return False
        self.low = self.since or self.low
        self._try_another()
        return True

    def part_of(self, usual: PageRequest) -> PageRequest:
        """Return the request for the next part of a page that is usually requested like this, or for the tried period."""
        if self.since is None:
            return msgspec.structs.replace(usual, size=self.size)
        return msgspec.structs.replace(usual, since=self.since, cursor=self.cursor, size=self.size)

    def advance(self, page: ListedPage) -> bool:
        """Continue after a part that was read by its cursor, and return whether the page is complete."""
        self.failures = 0
        self.left -= page.count
        self.size = min((size for size in _SIZES if size > self.size), default=self.size)
        return self.left <= 0

    def note_tried(self, *, is_after: bool) -> None:
        """Note that the tried time has led to a page, and whether it begins after the element."""
        if is_after or self.since == self.until:
            self.high = self.since
        else:
            self.known = self.low = self.since or self.low
        self._try_another()

    def follow(self, page: ListedPage) -> None:
        """Continue the tried period after a page without an order."""
        self.empty, self.cursor = self.empty + 1, page.next
        require_progress(self.empty, page)

    def _try_another(self) -> None:
        self.empty, self.cursor = 0, None
        if self.high is None:
            self.since = self.low + self.reach
            self.reach = min(self.reach * _GROWTH, _LONGEST_REACH)
        else:
            self.since = self.low + (self.high - self.low) / 2
        if self.until is not None:
            self.since = min(self.since, self.until)


def cursor_division_of(shape: ListShape, known: datetime, until: datetime | None) -> CursorDivision | None:
    """Return the parts of a page in a list with cursors, or None if the list has no smaller pages."""
    sizes = [size for size in _SIZES if size < shape.size]
    if not shape.is_divisible or shape.is_numbered or not sizes:
        return None
    unit = 2 * shape.unit
    return CursorDivision(shape.size, known, known, unit, until, shape.is_sorted, sizes[0], unit)
