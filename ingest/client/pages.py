"""The list of orders: the selection, and its pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import urlencode

from ingest.client.errors import UnexpectedAnswer


@dataclass(frozen=True, slots=True)
class OrdersPage:
    """A page of the list.

    Attributes:
        cursor: selects the next page, or None after the last one.
    """

    orders: tuple[dict[str, Any], ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Filters:
    """The selected orders, as names and values of the query."""

    given: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, limit: int | None, filters: Mapping[str, str | datetime]) -> Self:
        """The filters of a call.

        Raises:
            ValueError: if a time is without a time zone.
        """
        texts = [(name, _text(name, value)) for name, value in filters.items()]
        return cls(tuple(texts if limit is None else [("limit", str(limit)), *texts]))

    def query(self, cursor: str | None) -> str:
        """The query of the page after this cursor."""
        pairs = [*self.given, *([("cursor", cursor)] if cursor is not None else [])]
        return f"?{urlencode(pairs)}" if pairs else ""


def page_of(answer: Mapping[str, Any]) -> OrdersPage:
    """The page that an answer has.

    Raises:
        UnexpectedAnswer: if it has none.
    """
    orders, cursor = answer.get("orders"), answer.get("next_cursor")
    if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
        raise UnexpectedAnswer("the answer is not a list of orders")
    if not (cursor is None or (isinstance(cursor, str) and cursor)):
        raise UnexpectedAnswer("the response contains no usable cursor")
    return OrdersPage(tuple(orders), cursor)


def _text(name: str, value: str | datetime) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} must include a time zone")
        return value.isoformat()
    return value
