"""Reads the lists of an order whose pages are requested by POST, such as the connections of a GraphQL API.

The request for the order may contain the first page. Then an order of one page needs no further request.
"""

import re
from typing import Any

import msgspec

from ingest.domain.fetch.pages import Page, PageRequest
from ingest.domain.orders.order import InvalidDocument
from ingest.mapping.compiled.declaration import PartDeclaration
from ingest.mapping.compiled.paths import single_path, text_of, walk
from ingest.mapping.decoding import decode_json_strictly
from ingest.mapping.errors import MappingError, Mismatch, type_name
from ingest.mapping.parts import PartPages, cursor_of, elements_of

_ORDER_ID, _CURSOR = "{order_id}", "{cursor}"
_PLACEHOLDER = re.compile(f"{re.escape(_ORDER_ID)}|{re.escape(_CURSOR)}")
_encoder = msgspec.json.Encoder(decimal_format="number")


def part_of(name: str, declared: PartDeclaration) -> "PartPages | QueriedPages":
    """Return the part that a mapping declares.

    Raises:
        MappingError: the declaration is invalid.
    """
    return PartPages(name, declared) if declared.body is None else QueriedPages(name, declared, declared.body)


class QueriedPages:
    """One list, which implements the port `Part`.

    Args:
        name: of the list.
        declared: its declaration.
        body: the template of a request, with `{order_id}` and `{cursor}`.

    Raises:
        MappingError: the declaration is invalid.
    """

    def __init__(self, name: str, declared: PartDeclaration, body: dict[str, Any]) -> None:
        keys = ("parts", name)
        for key in ("url", "next_parameter", "page_parameter", "page_size"):
            if getattr(declared, key) is not None:
                raise MappingError(
                    f"`{key}` has no effect with `body`, which is sent to the URL of the order", (*keys, key)
                )
        texts = _encoder.encode(body).decode()
        for placeholder in (_ORDER_ID, _CURSOR):
            if placeholder not in texts:
                raise MappingError(f"needs {placeholder}", (*keys, "body"))
        if declared.next is None:
            raise MappingError("needs the key `next`, because `body` contains a cursor", keys)
        self.name = name
        self._body = body
        self._in_order = declared.in_order
        self._elements = single_path(declared.items, (*keys, "items")).steps
        self._next = single_path(declared.next, (*keys, "next")).steps
        self._more = None if declared.more is None else single_path(declared.more, (*keys, "more")).steps

    def within(self, body: bytes, order_id: str) -> Page | None:
        """Return the first page, if the document of the order contains it.

        Raises:
            TruncatedDocument: the document is truncated.
            InvalidDocument: it is not JSON.
        """
        if not self._in_order:
            return None
        document = decode_json_strictly(body)
        # The mapping reports the error in a document without the list. A query without page information has all elements.
        return self._page(document, order_id) if self._contains_page(document) else Page((), None)

    def first(self, order_id: str) -> PageRequest:
        """Return the request for the first page, whose cursor is null."""
        return PageRequest("", self._filled(order_id, None))

    def read(self, body: bytes, order_id: str, number: int) -> Page:
        """Return the content of a page.

        Raises:
            TruncatedDocument: it is truncated.
            InvalidDocument: it is not a page of the list.
        """
        del number
        return self._page(decode_json_strictly(body), order_id)

    def _contains_page(self, document: Any) -> bool:
        try:
            of_page = self._more or self._next
            return walk(document, self._elements) is not None and walk(document, of_page[:-1] or of_page) is not None
        except Mismatch:
            return False

    def _page(self, document: Any, order_id: str) -> Page:
        try:
            elements, cursor = elements_of(document, self._elements), self._cursor_in(document)
        except Mismatch as mismatch:
            raise InvalidDocument(f"part {self.name}: {mismatch.problem} - at `${mismatch.at or ''}`") from None
        return Page(elements, None if cursor is None else PageRequest("", self._filled(order_id, str(cursor))))

    def _cursor_in(self, document: Any) -> str | int | None:
        cursor = cursor_of(document, self._next)
        if self._more is None:
            return cursor
        has_more = walk(document, self._more)
        if not isinstance(has_more, bool):
            raise Mismatch(f"expected `bool`, got {type_name(has_more)}", text_of(self._more))
        if has_more and cursor is None:
            raise Mismatch("no cursor of the next page", text_of(self._next))
        return cursor if has_more else None

    def _filled(self, order_id: str, cursor: str | None) -> bytes:
        return _encoder.encode(_inserted(self._body, {_ORDER_ID: order_id, _CURSOR: cursor}))


def _inserted(value: Any, values: dict[str, str | None]) -> Any:
    """Return a template with values in the place of the placeholders in its texts."""
    if isinstance(value, dict):
        return {key: _inserted(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_inserted(inner, values) for inner in value]
    if not isinstance(value, str):
        return value
    if value in values:
        return values[value]
    return _PLACEHOLDER.sub(lambda found: values[found[0]] or "", value)
