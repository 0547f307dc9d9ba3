"""The place of a value in a request, which is a path into its JSON body, or a header.

A path is keys and indexes, written as in mappings: `data.object.lines[0].id`. A key with characters other than letters, digits, - and _
is written in quotes. `$` is the whole body. The value is read from the text of the body, so that long numbers and the digits of amounts
stay as they were sent.
"""

import hashlib
import re
from dataclasses import dataclass

import msgspec
from multidict import MultiMapping

from ingest.api.webhooks import declaration
from ingest.api.webhooks.declaration import WebhookError
from ingest.domain.fetch.request_headers import check_header_name
from ingest.domain.orders.clean_json import clean_json

_KEY, _INDEX = r'([A-Za-z_][A-Za-z0-9_-]*)|"([^"]+)"', r"\[([0-9]{1,9})\]"
_STEP = re.compile(rf"{_KEY}|{_INDEX}")
_PATH = re.compile(rf"\$|(?:\$\.?)?(?:{_KEY}|{_INDEX})(?:\.(?:{_KEY})|{_INDEX})*")
_INTEGER = re.compile(rb"-?[0-9]+")
# Longer texts are neither IDs nor names of events.
_LONGEST = 1_000

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotJson(ValueError):
    """The body is not a JSON object or list in UTF-8."""


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header.

    Attributes:
        names: The possible names of the header.
    """

    names: tuple[str, ...]

    def read(self, headers: MultiMapping[str], body: bytes) -> str | None:
        """The value of the first header in the request, or None if it occurs twice."""
        del body
        return single(headers, *self.names)

    def __str__(self) -> str:
        return f"header {self.names[0]}"


@dataclass(frozen=True, slots=True)
class PathPlace:
    """A path into the body.

    Attributes:
        text: The text as it is written.
        steps: Its keys and indexes.
    """

    text: str
    steps: tuple[str | int, ...]

    def read(self, headers: MultiMapping[str], body: bytes) -> str | None:
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


@dataclass(frozen=True, slots=True)
class FirstPlace:
    """The first of several paths with a value, for senders whose events have bodies of different kinds.

    Attributes:
        places: The paths. The usual one is the last.
    """

    places: tuple[PathPlace, ...]

    @classmethod
    def of(cls, *texts: str) -> "FirstPlace":
        """Return the place of these paths."""
        return cls(tuple(compile_path(text) for text in texts))

    def read(self, headers: MultiMapping[str], body: bytes) -> str | None:
        """The text or integer at the first path with one."""
        return next((found for place in self.places if (found := place.read(headers, body)) is not None), None)

    def __str__(self) -> str:
        return str(self.places[-1])


@dataclass(frozen=True, slots=True)
class EachPlace:
    """A place in each element of a list.

    Attributes:
        text: The text as it is written.
        above: The path of the list.
        below: The path in an element.
    """

    text: str
    above: PathPlace
    below: PathPlace

    def elements(self, body: bytes) -> list[bytes] | None:
        """The JSON texts of the elements, or None if there is no list."""
        found = self.above.find(body)
        try:
            return None if found is None else [bytes(element).strip() for element in _list(found)]
        except msgspec.ValidationError:
            return None

    def __str__(self) -> str:
        return self.text


class BodyDigest:
    """The body itself is the ID of an event, for senders whose own IDs are not unique."""

    def read(self, headers: MultiMapping[str], body: bytes) -> str:
        """The digest of the body."""
        del headers
        return hashlib.sha256(body).hexdigest()

    def __str__(self) -> str:
        return "the body"


Place = HeaderPlace | PathPlace | FirstPlace | BodyDigest
"""Where a value is. `read` returns None if the value is missing, or neither a text nor an integer."""


def checked_json(body: bytes) -> bytes:
    """The body, cleaned as documents are, if it is JSON.

    Raises:
        NotJson: It is not.
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


def single(headers: MultiMapping[str], *names: str) -> str | None:
    """The value of the first of several headers in a request, or None if there are none or it occurs twice."""
    for name in names:
        if values := headers.getall(name, []):
            return values[0] if len(values) == 1 else None
    return None


def compile_place(declared: declaration.Place) -> HeaderPlace | PathPlace:
    """Compile a place.

    Raises:
        WebhookError: It is not valid.
    """
    if isinstance(declared, str):
        return compile_path(declared)
    return HeaderPlace((header_name(declared.header, "header"),))


def compile_path(text: str) -> PathPlace:
    """Compile a path.

    Raises:
        WebhookError: It is not valid.
    """
    if not _PATH.fullmatch(text):
        problem = "an empty path" if not text else f"{text!r} is not a path"
        raise WebhookError(f"{problem}: write keys and indexes, such as data.orders[0].id")
    steps = _STEP.finditer(text)
    return PathPlace(text, tuple(int(step[3]) if step[3] else step[1] or step[2] for step in steps))


def compile_each(text: str) -> EachPlace:
    """Compile the path of a value in each element of a list, such as `events[].id`.

    Raises:
        WebhookError: It is not valid.
    """
    above, each, below = text.partition("[]")
    if not each:
        raise WebhookError("needs `[]` after the list, such as events[].id")
    return EachPlace(text, compile_path(above or "$"), compile_path("$" + below))


def header_name(name: str, key: str) -> str:
    """The name of a header, checked.

    Raises:
        WebhookError: It is not valid.
    """
    try:
        return check_header_name(name)
    except ValueError:
        raise WebhookError(f"{name!r} is not the name of a header, such as X-Signature", (key,)) from None


def _element(elements: list[msgspec.Raw], index: int) -> msgspec.Raw | None:
    return elements[index] if index < len(elements) else None
