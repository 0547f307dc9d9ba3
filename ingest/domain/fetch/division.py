"""Divides a page that cannot be fetched, until the element that breaks it is alone. Pure."""

from collections.abc import Sequence

import msgspec

from ingest.domain.errors import ListFault
from ingest.domain.fetch.listed import ListShape

# Sizes of the parts. A page with one such element takes about 15 requests.
_SIZES = (25, 5, 1)
# If this number of parts fails one after another, the shop fails, and not an element.
_MOST_FAILURES = 12
_MOST_REPEATS = 3


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
        last_ids: of the orders of the part before the next one.
        repeats: consecutive parts with these orders.
    """

    at: int
    end: int
    size: int
    largest: int
    counts_elements: bool
    unread: list[tuple[int, str]] = msgspec.field(default_factory=list)
    failures: int = 0
    has_read: bool = False
    last_ids: tuple[str, ...] = ()
    repeats: int = 0

    @property
    def number(self) -> int:
        """The number of the next part, as the list counts."""
        return self.at if self.counts_elements else self.at // self.size

    @property
    def is_done(self) -> bool:
        """Whether all parts were read or left out."""
        return self.at >= self.end

    def advance(self, order_ids: Sequence[str], count: int) -> None:
        """Continue after a part that was read.

        A shop that limits pages begins a part elsewhere. The elements of a part that is shorter than requested are requested one by one.

        Raises:
            ListFault: several parts contain the same orders.
        """
        self.failures, self.has_read = 0, True
        ids = tuple(order_ids)
        self.repeats = self.repeats + 1 if ids and ids == self.last_ids else 0
        self.last_ids = ids or self.last_ids
        if self.repeats >= _MOST_REPEATS:
            raise ListFault(f"the list does not end: {self.repeats} pages in a row contain the same orders")
        if 0 < count < self.size:
            self.size = self.largest = 1
            return
        self.at = self.at + self.size if self.counts_elements else (self.at // self.size + 1) * self.size
        self.size = max(size for size in _SIZES if size <= self.size or (size <= self.largest and self.at % size == 0))

    def fail(self) -> bool:
        """Divide a part that cannot be fetched, or leave out an element. Return False if the shop fails."""
        self.failures += 1
        if self.size == 1:
            self.unread.append((self.at, self.last_ids[-1] if self.last_ids else ""))
            self.at += 1
        else:
            self.size = max(size for size in _SIZES if size < self.size)
        return self.failures < _MOST_FAILURES and (self.has_read or not self.is_done)


def division_of(shape: ListShape, number: int, most: int) -> Division | None:
    """Return the parts of a page, or None if the list has no smaller pages.

    Args:
        shape: of the list.
        number: of the page, or of its first element.
        most: elements of the largest page so far. 0 before the first one.
    """
    sizes = [size for size in _SIZES if size < (most or shape.size)] or [1]
    if not (shape.is_divisible and shape.is_numbered and shape.size > 1):
        return None
    if shape.counts_elements:
        return Division(number, number + (most or shape.size), sizes[0], sizes[0], counts_elements=True)
    # The shop may serve smaller pages than requested, or leave orders out of them.
    begin = number * min(most or shape.size, shape.size)
    return Division(begin, (number + 1) * shape.size, sizes[0], sizes[0], counts_elements=False)
