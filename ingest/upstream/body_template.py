"""Writes an order ID into the template of a request's body, escaped for the place where it stands.

An ID may contain quotes, backslashes, brackets or `&`. Escaped, they cannot end the text in which the ID stands, or add to the request.
"""

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from urllib.parse import quote

import msgspec

from ingest.domain.masking import PLACEHOLDER

_Write = Callable[[str], str]
_NUMBER = re.compile("0|[1-9][0-9]*", re.ASCII)
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})
# A string of JSON or GraphQL without its end, or a character outside of strings.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[^"]', re.DOTALL)


class BodyTemplate:
    """A template with any number of placeholders for the order ID.

    Args:
        template: the text.
        media_type: of the body, in lower case, without parameters.
    """

    def __init__(self, template: str, media_type: str) -> None:
        texts = template.split(PLACEHOLDER)
        writers = _writers(texts, media_type)
        self._pieces: list[tuple[str, _Write | None]] = list(zip_longest(texts, writers))

    def filled(self, order_id: str) -> bytes:
        """Return the body for an order."""
        return "".join(text if write is None else text + write(order_id) for text, write in self._pieces).encode()


def _writers(texts: list[str], media_type: str) -> Iterator[_Write]:
    """How the ID is written after each text but the last."""
    # No ID has an influence on what follows it.
    is_json = _is_json("0".join(texts))
    for end in range(1, len(texts)):
        yield _writer("0".join(texts[:end]), media_type, _json_value if is_json else str)


def _writer(before: str, media_type: str, outside_strings: _Write) -> _Write:
    if "json" in media_type or "graphql" in media_type:
        inner = _open_string(before)
        if inner is None:
            return outside_strings
        # Such as a GraphQL document, which is a JSON string with strings in it.
        return _in_json_string if _open_string(_unescaped(inner)) is None else _in_nested_string
    if media_type == "application/x-www-form-urlencoded":
        return _percent_encoded
    return _in_xml if "xml" in media_type else str


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _open_string(text: str) -> str | None:
    """The content of the string that a text leaves open, or None if it leaves none open."""
    content: str | None = None
    for token in _TOKEN.finditer(text):
        content = token[0][1:] if token[1] == "" else None
    return content


def _unescaped(content: str) -> str:
    try:
        return msgspec.json.decode(f'"{content}"', type=str)
    except (msgspec.DecodeError, UnicodeError):
        # It is not JSON.
        return content


def _json_value(order_id: str) -> str:
    """A number if the ID is one, otherwise a string."""
    return order_id if _NUMBER.fullmatch(order_id) else f'"{_in_json_string(order_id)}"'


def _in_json_string(order_id: str) -> str:
    return msgspec.json.encode(order_id).decode()[1:-1]


def _in_nested_string(order_id: str) -> str:
    return _in_json_string(_in_json_string(order_id))


def _percent_encoded(order_id: str) -> str:
    return quote(order_id, safe="")


def _in_xml(order_id: str) -> str:
    return order_id.translate(_XML)
