"""Rules by which an operator declares the meaning of responses of one external API. Pure types and matching."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

EACH = -1
"""The step of a path that leads to each element of a list."""

# JSON text is compared up to this many characters. An error message is shorter.
_LONGEST_TEXT = 64 * 1024
_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_WHITESPACE = b" \t\r\n"
_LARGEST = 10**15
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")

Steps = tuple[str | int, ...]
Scalar = str | int | float | bool
Found = Scalar | msgspec.Raw | None
"""A value in a response. An object or an array stays as it is, because it is neither compared nor decoded."""


class Meaning(StrEnum):
    """The meaning of a response."""

    RETRY = "retry"
    THROTTLED = "throttled"
    CREDENTIAL = "credential"
    OUTAGE = "outage"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    DOCUMENT = "document"


class Pattern(msgspec.Struct, frozen=True):
    """A text in which `*` stands for any characters. Upper and lower case are equal.

    Attributes:
        parts: between the asterisks, in lower case. The time to match grows with the length of the text alone.
    """

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Pattern":
        """Parse a pattern."""
        return cls(tuple(text.lower().split("*")))

    def matches(self, text: str) -> bool:
        """Return whether the whole text fits."""
        text, first, last = text.lower(), self.parts[0], self.parts[-1]
        if len(self.parts) == 1:
            return text == first
        if not text.startswith(first):
            return False
        position = len(first)
        for part in self.parts[1:-1]:
            found = text.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        return text.endswith(last) and len(text) - len(last) >= position


class ValueTest(msgspec.Struct, frozen=True):
    """A test of the values at one place, which holds if one of the values fits.

    Attributes:
        present: whether there has to be a value that is not null, or None for either.
        is_null: whether the value has to be null.
        equals: the values that fit, or None for any. `true`, 1 and "1" are different.
        patterns: texts that fit, or None for any.
    """

    present: bool | None = None
    is_null: bool = False
    equals: tuple[Scalar, ...] | None = None
    patterns: tuple[Pattern, ...] | None = None

    def holds(self, values: Sequence[Found]) -> bool:
        """Return whether the test holds for these values, where None is null."""
        if self.present is False:
            return all(value is None for value in values)
        return any(self._fits(value) for value in values)

    def _fits(self, value: Found) -> bool:
        if value is None or self.is_null:
            return value is None and self.is_null
        if self.equals is not None and not _is_among(value, self.equals):
            return False
        return self.patterns is None or (
            isinstance(value, str) and any(pattern.matches(value) for pattern in self.patterns)
        )


class HeaderCondition(msgspec.Struct, frozen=True):
    """A condition for a header."""

    name: str
    test: ValueTest


class BodyCondition(msgspec.Struct, frozen=True):
    """A condition for the body.

    Attributes:
        steps: keys, indexes and `EACH`, from the top of the JSON document. None for the body as text.
    """

    steps: Steps | None
    test: ValueTest


class Delay(msgspec.Struct, frozen=True):
    """The time until the next request.

    Attributes:
        fixed: seconds, which apply if the response does not contain a time.
        steps: place of the time in the body.
        header: the header that contains it.
        unit: of the time in the response, in seconds.
    """

    fixed: float | None = None
    steps: Steps | None = None
    header: str | None = None
    unit: float = 1.0


class ResponseRule(msgspec.Struct, frozen=True):
    """One rule.

    Attributes:
        name: in errors, such as `responses[2]`.
        meaning: of a response for which all conditions hold.
        statuses: ranges of statuses, or none for any.
        headers: conditions for headers.
        body: conditions for the body.
        delay: of a response that is to be requested again.
    """

    name: str
    meaning: Meaning
    statuses: tuple[range, ...] = ()
    headers: tuple[HeaderCondition, ...] = ()
    body: tuple[BodyCondition, ...] = ()
    delay: Delay = Delay()

    def matches(self, status: int, headers: Mapping[str, str], body: "ResponseBody") -> bool:
        """Return whether all conditions hold. Conditions that cost less are checked first."""
        if self.statuses and not any(status in statuses for statuses in self.statuses):
            return False
        if not all(each.test.holds(_header(headers, each.name)) for each in self.headers):
            return False
        return all(body.fulfils(each) for each in self.body)


class ResponseBody:
    """The body of a response, of which only the values that conditions name are decoded.

    Args:
        body: without a content coding. A body of which only the beginning is known is not JSON.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._top: Mapping[str, msgspec.Raw] | None = None

    def fulfils(self, condition: BodyCondition) -> bool:
        """Return whether a condition holds. Only a condition for the text can hold for a body that is not JSON."""
        if condition.steps is None:
            return condition.test.holds((self._body[:_LONGEST_TEXT].decode(errors="replace"),))
        found = self.values(condition.steps)
        return found is not None and condition.test.holds(found)

    def values(self, steps: Steps) -> Sequence[Found] | None:
        """Return the values at a path, or None if the body is not JSON."""
        try:
            return [_value_of(raw) for raw in self._at(steps)]
        except _INVALID:
            return None

    def _at(self, steps: Steps) -> Iterator[msgspec.Raw]:
        if steps and isinstance(steps[0], str) and self._body.lstrip(_WHITESPACE)[:1] == b"{":
            if self._top is None:
                self._top = _members_of(self._body)
            member = self._top.get(steps[0])
            return iter(()) if member is None else _descend(member, steps[1:])
        return _descend(msgspec.json.decode(self._body, type=msgspec.Raw), steps)


def first_match(
    rules: Sequence[ResponseRule], status: int, headers: Mapping[str, str], body: ResponseBody
) -> ResponseRule | None:
    """Return the first rule whose conditions all hold."""
    return next((rule for rule in rules if rule.matches(status, headers, body)), None)


def number_of(value: Found) -> float | None:
    """Return a number, which may be written as text, or None. Larger numbers than 10^15 are reduced to it."""
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value := value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(min(value, _LARGEST))


def _descend(raw: msgspec.Raw, steps: Steps) -> Iterator[msgspec.Raw]:
    for position, step in enumerate(steps):
        start = bytes(memoryview(raw)[:1])
        if isinstance(step, str):
            member = _members_of(raw).get(step) if start == b"{" else None
            if member is None:
                return
            raw = member
            continue
        elements = _elements_of(raw) if start == b"[" else []
        if step == EACH:
            for element in elements:
                yield from _descend(element, steps[position + 1 :])
            return
        if step >= len(elements):
            return
        raw = elements[step]
    yield raw


def _value_of(raw: msgspec.Raw) -> Found:
    if bytes(memoryview(raw)[:1]) in {b"{", b"["}:
        return raw
    value: Scalar | None = msgspec.json.decode(raw)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _header(headers: Mapping[str, str], name: str) -> Sequence[str]:
    value = headers.get(name)
    return () if value is None else (value.strip(),)


def _is_among(value: Scalar | msgspec.Raw, others: Sequence[Scalar]) -> bool:
    is_bool = isinstance(value, bool)
    return any(value == other and is_bool is isinstance(other, bool) for other in others)
