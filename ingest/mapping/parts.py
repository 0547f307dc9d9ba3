"""Reads the lists of an order that are fetched by separate requests, and joins them into one document.

The document contains the key `parts`, an object with each list by its name. Mappings, user code and kept documents use the joined
document, so that mapping it again does not require new requests.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from ingest.domain.fetch.pages import Page, PageRequest
from ingest.domain.orders.order import InvalidDocument
from ingest.domain.orders.order_id import quoted_ids
from ingest.mapping.compiled.declaration import PartDeclaration
from ingest.mapping.compiled.paths import single_path, text_of, walk
from ingest.mapping.decoding import decode_json_strictly
from ingest.mapping.errors import MappingError, Mismatch, type_name

KEY = "parts"
_PLACEHOLDER = "{order_id}"
_encoder = msgspec.json.Encoder(decimal_format="number")


class PartPages:
    """One list, which implements the port `Part`.

    Raises:
        MappingError: the declaration is invalid.
    """

    def __init__(self, name: str, declared: PartDeclaration) -> None:
        keys = ("parts", name)
        url = declared.url or ""
        is_path = url.startswith(("/", "./")) and not url.startswith("//")
        if not is_path or url.count(_PLACEHOLDER) != 1 or " " in url:
            raise MappingError("needs a path on the server of the order, with {order_id} once", (*keys, "url"))
        if declared.in_order or declared.more is not None:
            key = "in_order" if declared.in_order else "more"
            raise MappingError(f"`{key}` needs `body`", (*keys, key))
        if declared.next is None and declared.next_parameter is not None:
            raise MappingError("`next_parameter` needs `next`", (*keys, "next_parameter"))
        if (declared.page_parameter is None) != (declared.page_size is None):
            given = "page_size" if declared.page_parameter is None else "page_parameter"
            raise MappingError("`page_parameter` and `page_size` need each other", (*keys, given))
        if declared.page_size is not None and declared.next is not None:
            raise MappingError("contains both `next` and `page_size`: remove one of them", (*keys, "page_size"))
        self.name = name
        self._before, self._after = url.split(_PLACEHOLDER)
        self._elements = single_path(declared.items, (*keys, "items")).steps
        self._next = None if declared.next is None else single_path(declared.next, (*keys, "next")).steps
        self._parameter = declared.next_parameter or declared.page_parameter
        self._size = declared.page_size

    def within(self, body: bytes, order_id: str) -> None:
        """The document of the order contains none of the pages."""
        del body, order_id

    def first(self, order_id: str) -> PageRequest:
        """Return the request for the first page."""
        return PageRequest(self._before + quoted_ids(order_id) + self._after)

    def read(self, body: bytes, order_id: str, number: int) -> Page:
        """Return the content of the page with this number, from 1.

        Raises:
            TruncatedDocument: it is truncated.
            InvalidDocument: it is not a page of the list.
        """
        document = decode_json_strictly(body)
        try:
            elements = elements_of(document, self._elements)
            if self._size is None:
                return Page(elements, self._next_of(document, order_id))
            return Page(elements, self._with_parameter(order_id, number + 1) if len(elements) >= self._size else None)
        except Mismatch as mismatch:
            raise InvalidDocument(f"part {self.name}: {mismatch.problem} - at `${mismatch.at or ''}`") from None

    def _next_of(self, document: Any, order_id: str) -> PageRequest | None:
        found = None if self._next is None else cursor_of(document, self._next)
        if found is None:
            return None
        return PageRequest(str(found)) if self._parameter is None else self._with_parameter(order_id, found)

    def _with_parameter(self, order_id: str, value: str | int) -> PageRequest:
        first = self.first(order_id).target
        between = "&" if "?" in first else "?"
        return PageRequest(f"{first}{between}{quote(self._parameter or '', safe='')}={quote(str(value), safe='')}")


def elements_of(document: Any, steps: tuple[str | int, ...]) -> list[Any]:
    """Return the list at a path.

    Raises:
        Mismatch: it is not a list.
    """
    elements = walk(document, steps)
    if not isinstance(elements, list):
        raise Mismatch(f"expected `array`, got {type_name(elements)}", text_of(steps))
    return elements


def cursor_of(document: Any, steps: tuple[str | int, ...]) -> str | int | None:
    """Return the value that leads to the next page, or None without one.

    Raises:
        Mismatch: it is neither text nor a number.
    """
    found = walk(document, steps)
    if found is None or found == "":
        return None
    if not isinstance(found, str | int) or isinstance(found, bool):
        raise Mismatch(f"expected `str` or `int`, got {type_name(found)}", text_of(steps))
    return found


def join(body: bytes, parts: dict[str, list[Any]]) -> bytes:
    """Return one document of an order and its lists, with all digits unchanged.

    Raises:
        InvalidDocument: the order's document is not an object.
    """
    document = body.strip()
    if not (document.startswith(b"{") and document.endswith(b"}")):
        raise InvalidDocument("expected `object` - at `$`")
    try:
        added = _encoder.encode({KEY: parts})
    except RecursionError:
        raise InvalidDocument("nested too deeply") from None
    inner = document[1:-1].strip()
    return b"{%s%s%s" % (inner, b"," if inner else b"", added[1:])
