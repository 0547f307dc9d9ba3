"""Reads the elements of a page, and where the next page is. Pure functions of the response."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from ingest.domain.errors import ListFault
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.orders.order_id import is_order_id
from ingest.upstream.lists.amounts import UNREADABLE, read_amount
from ingest.upstream.lists.declaration import LINK, OFFSET, PAGE, ListDeclaration, ListProblem
from ingest.upstream.lists.links import next_link
from ingest.upstream.lists.times import ListTimes

_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
_NULL = msgspec.Raw(b"null")
_LONGEST_CURSOR = 8 * 1024
_Path = tuple[str, ...]


class ReadPage(msgspec.Struct, frozen=True):
    """The content of a page.

    Attributes:
        orders: elements with a usable ID.
        count: of all elements.
        next: the next cursor, or None for the last page.
    """

    orders: Sequence[ListedOrder]
    count: int
    next: str | None


class PageReader:
    """Reads the pages of one list.

    Attributes:
        first_number: the cursor of the first page, in a list whose cursors are numbers.

    Raises:
        ListProblem: the paths cannot be used.
    """

    def __init__(self, declared: ListDeclaration, times: ListTimes) -> None:
        self._declared = declared
        self.first_number = declared.first_page if declared.next == PAGE else 0
        self._times = times
        self._items = _path(declared.items, "items")
        self._id = _path(declared.id, "id")
        if not self._id:
            raise ListProblem("must be a path, such as id", "id")
        self._updated_at = _path(declared.updated_at, "updated_at")
        self._amount = _path(declared.amount, "amount")
        self._next = () if declared.next in (LINK, PAGE, OFFSET) else _path(declared.next, "next")
        self._more = _path(declared.more, "more")
        self._total = _path(declared.total, "total")
        self._total_pages = _path(declared.total_pages, "total_pages")
        if self._total and not declared.size and declared.next == PAGE:
            raise ListProblem("needs `size`, the number of elements of a full page", "total")

    def read(self, body: bytes, headers: Mapping[str, str], cursor: str | None) -> ReadPage:
        """Return the content of a page.

        Args:
            body: of the response. Empty if the list contains no order.
            headers: of the response.
            cursor: of this page.

        Raises:
            ListFault: it is no page of the list.
        """
        if not body:
            return ReadPage((), 0, None)
        try:
            elements = self._elements(body)
            orders = [order for element in elements if (order := self._order(element)) is not None]
            return ReadPage(orders, len(elements), self._cursor(body, headers, cursor, len(elements)))
        except _INVALID as error:
            # Errors of msgspec name types and paths. Others may quote the document.
            text = str(error) if isinstance(error, msgspec.DecodeError) else "nested too deeply, or not JSON in UTF-8"
            raise ListFault(f"the response is no page of the list: {text[:200]}") from None

    def _elements(self, body: bytes) -> list[msgspec.Raw]:
        found = _walked(body, self._items) if self._items else _only_list(body)
        if _first(found) == b"[":
            return msgspec.json.decode(found, type=list[msgspec.Raw])
        if bytes(found) == b"null" and self._total and self._number(body, self._total) == 0:
            return []  # PHP's empty list of some shops
        where = f"at {self._declared.items!r}" if self._items else "in it"
        raise ListFault(f"the response is no page of the list: no array {where}, but {_kind(found)}")

    def _order(self, element: msgspec.Raw) -> ListedOrder | None:
        """Return the order of an element, or None without a usable ID."""
        try:
            found = msgspec.json.decode(_walked(element, self._id))
        except _INVALID:
            return None
        if isinstance(found, bool) or not isinstance(found, (str, int)):
            return None
        order_id = str(found).removeprefix(self._declared.remove_prefix)
        if not is_order_id(order_id):
            return None
        document = bytes(element) if self._declared.complete else None
        return ListedOrder(order_id, self._time(element), document, self._amount_of(element))

    def _time(self, element: msgspec.Raw) -> Any:
        if not self._updated_at:
            return None
        try:
            return self._times.read(msgspec.json.decode(_walked(element, self._updated_at)))
        except _INVALID:
            return None

    def _amount_of(self, element: msgspec.Raw) -> Decimal | None:
        if not self._amount:
            return None
        try:
            return read_amount(_walked(element, self._amount))
        except _INVALID:
            return UNREADABLE

    def _cursor(self, body: bytes, headers: Mapping[str, str], cursor: str | None, count: int) -> str | None:
        declared = self._declared
        if self._more and _value(body, self._more) is not True:
            return None
        if declared.next == LINK:
            return next_link(headers)
        if self._next:
            return _text_cursor(_value(body, self._next))
        return self._number_after(body, cursor, count) if declared.is_numbered else None

    def _number_after(self, body: bytes, cursor: str | None, count: int) -> str | None:
        declared, first = self._declared, self.first_number
        number = first if cursor is None else int(cursor)
        if not count or count < declared.size:
            return None
        following = number + (1 if declared.next == PAGE else count)
        pages = self._number(body, self._total_pages)
        if pages is not None and declared.next == PAGE and following - first >= pages:
            return None
        total = self._number(body, self._total)
        ended = (following - first) * (declared.size if declared.next == PAGE else 1)
        return None if total is not None and ended >= total else str(following)

    def _number(self, body: bytes, path: _Path) -> int | None:
        found = _value(body, path) if path else None
        if isinstance(found, str) and found.isascii() and found.isdigit():
            return int(found[:18])
        return found if isinstance(found, int) else None


def _path(text: str, key: str) -> _Path:
    steps = tuple(text.split(".")) if text else ()
    if not all(steps) or any(character.isspace() or character in "[]\"'" for character in text):
        raise ListProblem(f"must be names of members separated by dots, such as data.orders (got {text!r})", key)
    return steps


def _walked(value: bytes | msgspec.Raw, path: _Path) -> msgspec.Raw:
    """Return the value at a path, or null if a step is missing."""
    found = msgspec.Raw(bytes(value))
    for step in path:
        if _first(found) != b"{":
            return _NULL
        found = msgspec.json.decode(found, type=dict[str, msgspec.Raw]).get(step, _NULL)
    return found


def _value(body: bytes, path: _Path) -> Any:
    found = _walked(body, path)
    return None if _first(found) in (b"{", b"[") else msgspec.json.decode(found)


def _only_list(body: bytes) -> msgspec.Raw:
    document = msgspec.Raw(body)
    if _first(document) != b"{":
        return document
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    lists = [value for value in members.values() if _first(value) == b"["]
    if len(lists) > 1:
        raise ListFault(f"the response contains {len(lists)} arrays: set `items` to the path of the orders")
    return lists[0] if lists else document


def _first(value: msgspec.Raw) -> bytes:
    return bytes(memoryview(value)[:16]).lstrip()[:1]


def _kind(found: msgspec.Raw) -> str:
    kinds = {b"{": "an object", b"[": "an array", b'"': "a text", b"n": "nothing", b"t": "a boolean", b"f": "a boolean"}
    return kinds.get(_first(found), "a number or no JSON")


def _text_cursor(found: Any) -> str | None:
    if found is None or found == "" or found is False:
        return None
    if isinstance(found, bool) or not isinstance(found, (str, int)) or len(str(found)) > _LONGEST_CURSOR:
        raise ListFault("the response is no page of the list: its next page is neither a text nor a number")
    return str(found)
