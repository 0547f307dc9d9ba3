"""Lists of an order that are fetched by separate requests, page by page."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Page(NamedTuple):
    """One page.

    Attributes:
        elements: of the list.
        next: path or URL of the next page, or None for the last page.
    """

    elements: Sequence[Any]
    next: str | None


class Part(Protocol):
    """One such list, implemented by `ingest.mapping.parts`.

    Attributes:
        name: in the order.
    """

    name: str

    def first(self, order_id: str) -> str:
        """Return the path of the first page, absolute or relative to the URL of the order."""

    def read(self, body: bytes, order_id: str, number: int) -> Page:
        """Return the content of the page with this number, from 1.

        Raises:
            InvalidDocument: it is not a page of the list.
        """


Join = Callable[[bytes, dict[str, list[Any]]], bytes]
"""Combines an order and its lists into one document. It raises `InvalidDocument` if the order's own document is not an object."""
