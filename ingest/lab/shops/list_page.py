"""One page that is cut from a whole list."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class ListPage(NamedTuple, Generic[T]):
    """A page.

    Attributes:
        start: place of its first element in the whole list.
        selected: the elements of the page, which decide where the next one begins.
        shown: the selected elements that the response contains.
        has_more: whether the shop claims that another page follows.
    """

    start: int
    selected: Sequence[T]
    shown: Sequence[T]
    has_more: bool


def plain_page(items: Sequence[T], start: int, size: int) -> ListPage[T]:
    """Cut a page without deviations."""
    selected = items[start : start + size]
    return ListPage(start, selected, selected, start + size < len(items))
