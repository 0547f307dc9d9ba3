"""Reads the lists of an order that are fetched by separate requests, and joins them into one document.

The document contains the key `parts`, an object with each list by its name. Mappings, user code and kept documents use the joined
document, so that mapping it again does not require new requests.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from ingest.domain.fetch.pages import Page
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
        url = declared.url
        is_path = url.startswith(("/", "./")) and not url.startswith("//")
        if not is_path or url.count(_PLACEHOLDER) != 1 or " " in url:
            raise MappingError("needs a path on the server of the order, with {order_id} once", (*keys, "url"))
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

    def first(self, order_id: str) -> str:
        """Return the path of the first page."""
        return self._before + quoted_ids(order_id) + self._after

    def read(self, body: bytes, order_id: str, number: int) -> Page:
        """Return the content of the page with this number, from 1.

        Raises:
            TruncatedDocument: it is truncated.
            InvalidDocument: it is not a page of the list.
        """
        document = decode_json_strictly(body)
        try:
            elements = self._elements_of(document)
            if self._size is None:
                return Page(elements, self._next_of(document, order_id))
            return Page(elements, self._with_parameter(order_id, number + 1) if len(elements) >= self._size else None)
        except Mismatch as mismatch:
            raise InvalidDocument(f"part {self.name}: {mismatch.problem} - at `${mismatch.at or ''}`") from None

    def _elements_of(self, document: Any) -> list[Any]:
        elements = walk(document, self._elements)
        if not isinstance(elements, list):
            raise Mismatch(f"expected `array`, got {type_name(elements)}", text_of(self._elements))
        return elements

    def _next_of(self, document: Any, order_id: str) -> str | None:
        if self._next is None:
            return None
        found = walk(document, self._next)
        if found is None or found == "":
            return None
        if found.__class__ not in {str, int}:
            raise Mismatch(f"expected `str` or `int`, got {type_name(found)}", text_of(self._next))
        if self._parameter is None:
            return str(found)
        return self._with_parameter(order_id, found)

    def _with_parameter(self, order_id: str, value: str | int) -> str:
        first = self.first(order_id)
        between = "&" if "?" in first else "?"
        return f"{first}{between}{quote(self._parameter or '', safe='')}={quote(str(value), safe='')}"


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
