"""A list of an order that takes requests of its own, page by page."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Page(NamedTuple):
    """One page.

    Attributes:
        elements: of the list.
        next: path or URL of the next page; None for the last.
    """

    elements: Sequence[Any]
    next: str | None


class Part(Protocol):
    """One such list: `ingest.mapping.parts`.

    Attributes:
        name: in the order.
    """

    name: str

    def first(self, order_id: str) -> str:
        """Path of the first page."""

    def read(self, body: bytes, order_id: str) -> Page:
        """The content of a page.

        Raises:
            InvalidDocument: it is not a page of the list.
        """


class Join(Protocol):
    """Makes one document of an order and its lists."""

    def __call__(self, body: bytes, parts: dict[str, list[Any]]) -> bytes:
        """The document.

        Raises:
            InvalidDocument: the order's own document is not an object.
        """
