"""Rules by which an operator declares the meaning of responses of one external API. Pure types and matching."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ingest.domain.fetch.response_body import Found, ResponseBody, Scalar, Steps


class Meaning(StrEnum):
    """The meaning of a response."""

    RETRY = "retry"
    THROTTLED = "throttled"
    CREDENTIAL = "credential"
    OUTAGE = "outage"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    DOCUMENT = "document"


class TextPattern(msgspec.Struct, frozen=True):
    """A text in which `*` stands for any characters. Upper and lower case are equal.

    Attributes:
        parts: between the asterisks, in lower case. The time to match grows with the length of the text alone.
    """

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "TextPattern":
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
    """A test of the values at one place, which holds if one of the values fits, or every one.

    Attributes:
        present: whether there has to be a value that is not null, or None for either.
        is_null: whether the value has to be null.
        equals: the values that fit, or None for any. `true`, 1 and "1" are different.
        patterns: texts that fit, or None for any.
        is_for_every: whether there has to be a value, and all of them have to fit.
    """

    present: bool | None = None
    is_null: bool = False
    equals: tuple[Scalar, ...] | None = None
    patterns: tuple[TextPattern, ...] | None = None
    is_for_every: bool = False

    def holds(self, values: Sequence[Found]) -> bool:
        """Return whether the test holds for these values, where None is null."""
        if self.present is False:
            return all(value is None for value in values)
        if self.is_for_every:
            return bool(values) and all(self._fits(value) for value in values)
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

    def holds(self, body: ResponseBody) -> bool:
        """Return whether it holds. Only a condition for the text can hold for a body that is not JSON."""
        if self.steps is None:
            return self.test.holds((body.text(),))
        values = body.values(self.steps)
        return values is not None and self.test.holds(values)


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
        name: in errors. By default its place, such as `responses[2]`.
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

    @property
    def reads_errors(self) -> bool:
        """Whether a condition is for the errors that the body states."""
        return any(each.steps is not None and each.steps[:1] == ("errors",) for each in self.body)

    def matches(self, status: int, headers: Mapping[str, str], body: ResponseBody) -> bool:
        """Return whether all conditions hold. Conditions that cost less are checked first."""
        if self.statuses and not any(status in statuses for statuses in self.statuses):
            return False
        if not all(each.test.holds(_header(headers, each.name)) for each in self.headers):
            return False
        return all(each.holds(body) for each in self.body)


def first_match(
    rules: Sequence[ResponseRule], status: int, headers: Mapping[str, str], body: ResponseBody
) -> ResponseRule | None:
    """Return the first rule whose conditions all hold."""
    return next((rule for rule in rules if rule.matches(status, headers, body)), None)


def _header(headers: Mapping[str, str], name: str) -> Sequence[str]:
    value = headers.get(name)
    return () if value is None else (value.strip(),)


def _is_among(value: Scalar | msgspec.Raw, others: Sequence[Scalar]) -> bool:
    is_bool = isinstance(value, bool)
    return any(value == other and is_bool is isinstance(other, bool) for other in others)
