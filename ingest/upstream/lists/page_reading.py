"""Reads the elements of a page, and where the next page is. Pure functions of the response."""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from ingest.domain.errors import ListFault
from ingest.domain.fetch.listed import ListedOrder, ListedPage
from ingest.domain.orders.order_id import is_order_id
from ingest.upstream.lists.broken_elements import isolate_broken, isolated_id
from ingest.upstream.lists.declaration import HEADER, LINK, OFFSET, PAGE, ListAmount, ListDeclaration, ListProblem
from ingest.upstream.lists.links import is_number, next_link
from ingest.upstream.lists.times import ListTimes
from ingest.upstream.responses import http_date

_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
_NULL = msgspec.Raw(b"null")
_LONGEST_CURSOR, _LONGEST_EXAMPLE = 8 * 1024, 60
_UNREADABLE = Decimal("NaN")
_AMOUNT = re.compile(r"-?[0-9]{1,60}(?:\.[0-9]{1,60})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_MAX_MAGNITUDE, _MAX_DIGITS = 30, 60  # as for the totals of documents
_Path = tuple[str, ...]

Convert = Callable[[Decimal, str | None], Decimal]
"""Converts an amount, given its currency."""

Skips = Callable[[bytes], bool | None]
"""Returns whether an element is no order by the mapping, or None if the element does not show it."""


class PageReader:
    """Reads the pages of one list.

    Args:
        declared: the description of the list.
        times: reads the times of its elements.
        convert: an amount from the conversions that the list declares.
        skips: recognizes elements that are no orders.

    Raises:
        ListProblem: the paths cannot be used.
    """

    def __init__(
        self,
        declared: ListDeclaration,
        times: ListTimes,
        convert: Convert | None = None,
        skips: Skips = lambda _: False,
    ) -> None:
        self._declared = declared
        self._times = times
        self._convert = convert
        self._skips = skips
        self._items = _path(declared.items, "items")
        self._id = _path(declared.id, "id")
        if not self._id:
            raise ListProblem("must be a path, such as id", "id")
        self._updated_at = _path(declared.updated_at, "updated_at")
        amount = declared.amount if isinstance(declared.amount, ListAmount) else ListAmount(path=declared.amount)
        self._amount, self._currency = _path(amount.path, "amount"), _path(amount.currency, "amount")
        self._next = () if declared.next in (LINK, PAGE, OFFSET) else _path(declared.next, "next")
        self._more = _path(declared.more, "more")
        self._total = _path_or_header(declared.total, "total")
        self._total_pages = _path_or_header(declared.total_pages, "total_pages")

    def read(self, body: bytes, headers: Mapping[str, str], number: int, *, is_part: bool = False) -> ListedPage:
        """Return the content of a page, with its number from 0. A number of pages means nothing for a part, which is smaller than usual.

        Raises:
            ListFault: it is no page of the list.
        """
        if not body:
            return ListedPage((), has_more=False, sent_at=http_date(headers.get("Date")))
        try:
            return self._page(body, headers, number, is_part=is_part)
        except _INVALID:
            isolated = isolate_broken(body, len(self._items), self._id[-1])
        try:
            return self._page(isolated, headers, number, is_part=is_part)
        except _INVALID as error:
            # Errors of msgspec name types and paths. Others may quote the document.
            text = str(error) if isinstance(error, msgspec.DecodeError) else "nested too deeply, or not JSON in UTF-8"
            raise ListFault(f"the response is no page of the list: {text[:200]}") from None

    def _page(self, body: bytes, headers: Mapping[str, str], number: int, *, is_part: bool) -> ListedPage:
        elements = self._elements(body)
        orders, unusable, unread_time = list[ListedOrder](), list[str](), ""
        for index, element in enumerate(elements, 1):
            if (order := self._order(element)) is None:
                unusable.append(self._described(index, element, orders))
                continue
            orders.append(order)
            if order.updated_at is None and not unread_time and self._updated_at:
                found = bytes(_walked(element, self._updated_at)).decode(errors="replace")
                unread_time = "" if found == "null" else found[:_LONGEST_EXAMPLE]
        following = self._cursor(body, headers)
        return ListedPage(
            orders,
            len(elements),
            following,
            self._has_more(body, headers, number, is_part=is_part),
            self._number(body, headers, self._total),
            following is not None and is_number(following),
            http_date(headers.get("Date")),
            unusable,
            unread_time,
        )

    def _described(self, index: int, element: msgspec.Raw, before: Sequence[ListedOrder]) -> str:
        """Return where an element without a usable ID is."""
        after = f", after the order {before[-1].order_id}" if before else ""
        known = isolated_id(element).removeprefix(self._declared.remove_prefix)
        named = f", with the ID {known}" if is_order_id(known) else ""
        problem = "has no usable ID" if _first(element) == b"{" else "is no JSON object"
        return f"element {index} of a page{after}{named}, {problem}"

    def _elements(self, body: bytes) -> list[msgspec.Raw]:
        found = _walked(body, self._items) if self._items else _only_list(body)
        if _first(found) == b"[":
            return msgspec.json.decode(found, type=list[msgspec.Raw])
        if bytes(found) == b"null" and self._number(body, {}, self._total) == 0:
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
        is_skipped = self._skips(bytes(element))
        return ListedOrder(order_id, self._time(element), document, self._amount_of(element), is_skipped)

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
            amount = _exact(_walked(element, self._amount))
            if self._convert is None or amount is None or amount.is_nan():
                return amount
            currency = _value(element, self._currency) if self._currency else None
            return self._convert(amount, currency if isinstance(currency, str) else None)
        except _INVALID:
            return _UNREADABLE

    def _cursor(self, body: bytes, headers: Mapping[str, str]) -> str | None:
        """Return the shop's own cursor of the next page."""
        if self._declared.next == LINK:
            return next_link(headers)
        return _text_cursor(_value(body, self._next)) if self._next else None

    def _has_more(self, body: bytes, headers: Mapping[str, str], number: int, *, is_part: bool) -> bool | None:
        """Return the shop's own word on whether another page follows."""
        if self._more and (more := _value(body, self._more)) is not None:
            return more is True
        pages = self._number(body, headers, self._total_pages)
        return None if pages is None or is_part or self._declared.next != PAGE else number + 1 < pages

    def _number(self, body: bytes, headers: Mapping[str, str], path: _Path | str) -> int | None:
        if not path:
            return None
        found = headers.get(path) if isinstance(path, str) else _value(body, path)
        if isinstance(found, str) and found.isascii() and found.isdigit():
            return int(found[:18])
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def _path_or_header(text: str, key: str) -> _Path | str:
    """Return a path, or the name of a header."""
    return text.removeprefix(HEADER) if text.startswith(HEADER) else _path(text, key)


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


def _value(body: bytes | msgspec.Raw, path: _Path) -> Any:
    found = _walked(body, path)
    return None if _first(found) in (b"{", b"[") else msgspec.json.decode(found)


def _exact(value: msgspec.Raw) -> Decimal | None:
    """Return an amount, None for null or an empty text, or NaN if it cannot be read."""
    found = msgspec.json.decode(value, type=str) if _first(value) == b'"' else bytes(value).decode()
    if found in ("", "null"):
        return None
    amount = Decimal(found) if _AMOUNT.fullmatch(found) else _UNREADABLE
    is_too_long = amount and (abs(amount.adjusted()) > _MAX_MAGNITUDE or len(amount.as_tuple().digits) > _MAX_DIGITS)
    return _UNREADABLE if is_too_long else amount


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
