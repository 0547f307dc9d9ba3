"""Lists of an order that are fetched by separate requests, page by page."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class PageRequest(NamedTuple):
    """The request for a page.

    Attributes:
        target: path or URL, absolute or relative to the URL of the order. Empty for that URL itself.
        body: of a POST, or None for a GET.
    """

    target: str
    body: bytes | None = None


class Page(NamedTuple):
    """One page.

    Attributes:
        elements: of the list.
        next: the request for the next page, or None for the last page.
    """

    elements: Sequence[Any]
    next: PageRequest | None


class Part(Protocol):
    """One such list, implemented by `ingest.mapping.parts`.

    Attributes:
        name: in the order.
    """

    name: str

    def within(self, body: bytes, order_id: str) -> Page | None:
        """Return the first page, if the document of the order contains it.

        Raises:
            InvalidDocument: the document cannot be read.
        """

    def first(self, order_id: str) -> PageRequest:
        """Return the request for the first page."""

    def read(self, body: bytes, order_id: str, number: int) -> Page:
        """Return the content of the page with this number, from 1.

        Raises:
            InvalidDocument: it is not a page of the list.
        """


Join = Callable[[bytes, dict[str, list[Any]]], bytes]
"""Combines an order and its lists into one document. It raises `InvalidDocument` if the order's own document is not an object."""
