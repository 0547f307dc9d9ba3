"""The place of a value in a request: a path into its JSON body, or a header.

A path is keys and indexes, written as in mappings: `data.object.lines[0].id`. A key with characters other than letters, digits, - and _
is written in quotes. `$` is the whole body. The value is read from the text of the body, so that long numbers and the digits of amounts
stay as they were sent.
"""

import re
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ingest.api.webhooks import declaration
from ingest.api.webhooks.errors import SourceError
from ingest.domain.fetch.request_headers import check_header_name
from ingest.domain.orders.clean_json import clean_json

_STEP = re.compile(r'(?P<key>[A-Za-z_][A-Za-z0-9_-]*)|"(?P<quoted>[^"]+)"|\[(?P<index>[0-9]{1,9})\]')
_INTEGER = re.compile(rb"-?[0-9]+")
# Longer texts are no IDs and no names of events.
_LONGEST = 1_000

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotJson(ValueError):
    """A body that is no JSON object or list in UTF-8."""


class Headers(Protocol):
    """The headers of a request."""

    def getall(self, name: str, default: list[str], /) -> list[str]:
        """The values of a header, by its name in any case."""


class Place(Protocol):
    """Where a value is."""

    def read(self, headers: Headers, body: bytes) -> str | None:
        """The value, or None if it is missing, or neither a text nor an integer."""


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header.

    Attributes:
        names: that it may have.
    """

    names: tuple[str, ...]

    def read(self, headers: Headers, body: bytes) -> str | None:
        """The value of the first header in the request, or None if it occurs twice."""
        del body
        return single(headers, *self.names)

    def __str__(self) -> str:
        return f"header {self.names[0]}"


@dataclass(frozen=True, slots=True)
class PathPlace:
    """A path into the body.

    Attributes:
        text: as it is written.
        steps: its keys and indexes.
    """

    text: str
    steps: tuple[str | int, ...]

    def read(self, headers: Headers, body: bytes) -> str | None:
        """The text or integer at the path."""
        del headers
        found = self.find(body)
        if found is None or len(found) > _LONGEST:
            return None
        if _INTEGER.fullmatch(found):
            return found.decode("ascii")
        try:
            return _text(found) if found.startswith(b'"') else None
        except _UNDECODABLE:
            return None

    def find(self, body: bytes) -> bytes | None:
        """The JSON text at the path, or None if it is missing or null."""
        found = body
        for step in self.steps:
            try:
                inner = _object(found).get(step) if isinstance(step, str) else _element(_list(found), step)
            except msgspec.ValidationError:
                return None  # a value of another type
            if inner is None:
                return None
            found = bytes(inner).strip()
        return None if found == b"null" else found

    def __str__(self) -> str:
        return self.text


def checked_json(body: bytes) -> bytes:
    """The body, cleaned as documents are, if it is JSON.

    Raises:
        NotJson: it is not.
    """
    text = clean_json(body).strip()
    try:
        text.decode()
        if text.startswith(b"["):
            _list(text)
        else:
            _object(text)
    except _UNDECODABLE:
        raise NotJson from None
    return text


def single(headers: Headers, *names: str) -> str | None:
    """The value of the first of several headers in a request, or None if there are none or it occurs twice."""
    for name in names:
        if values := headers.getall(name, []):
            return values[0] if len(values) == 1 else None
    return None


def compile_place(declared: declaration.Place) -> HeaderPlace | PathPlace:
    """Compile a place.

    Raises:
        SourceError: it is none.
    """
    if isinstance(declared, str):
        return compile_path(declared)
    return HeaderPlace((header_name(declared.header, "header"),))


def compile_path(text: str) -> PathPlace:
    """Compile a path.

    Raises:
        SourceError: it is none.
    """
    steps: list[str | int] = []
    rest = text.removeprefix("$.") if text.startswith("$.") else text.removeprefix("$")
    position = 0
    while position < len(rest):
        if position and rest[position] == ".":
            position += 1
        step = _STEP.match(rest, position)
        is_joined = not position or rest[position - 1] == "." or rest[position : position + 1] == "["
        if step is None or not is_joined or (rest[position - 1 : position] == "." and step["index"]):
            raise SourceError(f"{text!r} is not a path: write keys and indexes, such as data.orders[0].id")
        key = step["key"] or step["quoted"]
        steps.append(key if key is not None else int(step["index"]))
        position = step.end()
    if not steps and text != "$":
        raise SourceError("an empty path: write keys and indexes, such as data.orders[0].id")
    return PathPlace(text, tuple(steps))


def header_name(name: str, key: str) -> str:
    """The name of a header, checked.

    Raises:
        SourceError: it is none.
    """
    try:
        return check_header_name(name)
    except ValueError:
        raise SourceError(f"{name!r} is not the name of a header, such as X-Signature", (key,)) from None


def _element(elements: list[msgspec.Raw], index: int) -> msgspec.Raw | None:
    return elements[index] if index < len(elements) else None
