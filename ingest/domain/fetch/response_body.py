"""Finds values in the body of a response by paths, and decodes nothing else of it. Pure functions."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import msgspec

from ingest.domain.orders.clean_json import clean_json
from ingest.domain.printable import printable

EACH = -1
"""The step of a path that leads to each element of a list."""

# JSON text is compared up to this many characters. An error message is shorter.
_LONGEST_TEXT = 64 * 1024
# Commas in a list whose elements are read, which bounds its elements. Each takes a multiple of its bytes in memory.
_MOST_COMMAS = 100_000
_MOST_ERRORS, _LONGEST_ERRORS = 3, 300
_STATING = ("errors", "message", "error")
_MISSING = msgspec.Raw(b"")
_list_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_WHITESPACE = b" \t\r\n"
_LARGEST = 10**15
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")

Steps = tuple[str | int, ...]
Scalar = str | int | float | bool
Found = Scalar | msgspec.Raw | None
"""A value in a response. An object or an array stays as it is, because it is neither compared nor decoded."""


class ResponseBody:
    """The body of a response, of which only the values that conditions name are decoded.

    Args:
        received: the body without a content coding. A body of which only the beginning is known is not JSON.
    """

    def __init__(self, received: bytes) -> None:
        self._received = received
        self._top: dict[str, msgspec.Raw] = {}

    @cached_property
    def _body(self) -> bytes:
        # Only for rules with a condition for the body.
        return clean_json(self._received)

    def text(self) -> str:
        """Return the beginning of the body as text."""
        return self._body[:_LONGEST_TEXT].decode(errors="replace")

    def values(self, steps: Steps) -> Sequence[Found] | None:
        """Return the values at a path, or None if the body is not JSON."""
        try:
            return [_value_of(raw) for raw in self._at(steps)]
        except _INVALID:
            return None

    def errors(self) -> str:
        """Return the errors that the body states in `errors`, with their places, or in `message` or `error`, or an empty text."""
        stated = next((found for name in _STATING if (found := self._small(name)) is not None), None)
        listed = stated if isinstance(stated, list) else [stated]
        texts = [text for each in listed[:_MOST_ERRORS] if (text := _error_text(each))]
        return printable("; ".join(texts), _LONGEST_ERRORS)

    def _small(self, name: str) -> Any:
        """Return the value of a member, or None if it is missing, large or invalid."""
        try:
            raw = _member(self._body, name) if self._body.lstrip(_WHITESPACE)[:1] == b"{" else _MISSING
            return msgspec.json.decode(raw) if raw and memoryview(raw).nbytes <= _LONGEST_TEXT else None
        except _INVALID:
            return None

    def _at(self, steps: Steps) -> Iterator[msgspec.Raw]:
        if steps and isinstance(steps[0], str) and self._body.lstrip(_WHITESPACE)[:1] == b"{":
            # Rules often begin at the same member.
            member = self._top.get(steps[0])
            if member is None:
                member = self._top[steps[0]] = _member(self._body, steps[0])
            return iter(()) if member is _MISSING else _descend(member, steps[1:])
        return _descend(msgspec.json.decode(self._body, type=msgspec.Raw), steps)


def number_of(value: Found) -> float | None:
    """Return a number, which may be written as text, or None. Larger numbers than 10^15 are reduced to it."""
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value := value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(min(value, _LARGEST))


def _error_text(error: Any) -> str:
    """Return the message of an error with its path, as GraphQL and others write them."""
    if isinstance(error, str):
        return error
    if not isinstance(error, dict) or not isinstance(message := error.get("message"), str):
        return ""
    path = error.get("path")
    return f"{message} (at {'.'.join(map(str, path))})" if isinstance(path, list) and path else message


def _descend(raw: msgspec.Raw, steps: Steps) -> Iterator[msgspec.Raw]:
    for position, step in enumerate(steps):
        start = bytes(memoryview(raw)[:1])
        if isinstance(step, str):
            raw = _member(raw, step) if start == b"{" else _MISSING
            if raw is _MISSING:
                return
            continue
        elements = _elements(raw) if start == b"[" else []
        if step == EACH:
            for element in elements:
                yield from _descend(element, steps[position + 1 :])
            return
        if step >= len(elements):
            return
        raw = elements[step]
    yield raw


@cache
def member_reader(key: str) -> Callable[[bytes | msgspec.Raw], msgspec.Raw]:
    """Return a function that finds a member of a JSON object, and builds nothing of the others. The keys come from rules only.

    Raises:
        ValueError: the key contains a quote, a backslash or a control character.
    """
    fields: Any = [("value", msgspec.Raw, _MISSING)]
    decode: Any = msgspec.json.Decoder(msgspec.defstruct("Member", fields, rename={"value": key}, gc=False)).decode
    return lambda text: decode(text).value


def _member(text: bytes | msgspec.Raw, key: str) -> msgspec.Raw:
    return member_reader(key)(text)


def _elements(raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
    if memoryview(raw).nbytes > _MOST_COMMAS and bytes(raw).count(b",") > _MOST_COMMAS:
        raise msgspec.DecodeError("a list with too many elements")
    return _list_of(raw)


def _value_of(raw: msgspec.Raw) -> Found:
    if bytes(memoryview(raw)[:1]) in {b"{", b"["}:
        return raw
    value: Scalar | None = msgspec.json.decode(raw)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value
