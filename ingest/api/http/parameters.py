"""Reads the query of a request strictly. An unknown, repeated or malformed parameter is rejected by its name."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from ingest.api.http.problems import Problem

_LONGEST = 256
# The name of a retry that contains an order's ID, as JSON and in Base64.
_LONGEST_CURSOR = 2_000
_MOST_VALUES = 100


class Parameters:
    """The parameters of one request.

    Args:
        request: Has them.
        single: Names that may be given once.
        repeated: Names that may be given several times.

    Raises:
        Problem: 422 for another name, or for a name that is repeated or too long.
    """

    def __init__(self, request: web.Request, single: Sequence[str], repeated: Sequence[str] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in request.rel_url.query.items():
            if name not in single and name not in repeated:
                raise Problem(422, "unknown_parameter", f"known here: {', '.join((*single, *repeated))}")
            values = self._values.setdefault(name, [])
            values.append(value)
            if len(values) > (_MOST_VALUES if name in repeated else 1):
                raise _invalid(name, "it is given too often")
            longest = _LONGEST_CURSOR if name == "cursor" else _LONGEST
            if len(value) > longest or "\0" in value:
                raise _invalid(name, f"at most {longest:,} characters, and no NUL")

    def text(self, name: str) -> str | None:
        """A value, or None if it is not given."""
        values = self._values.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> frozenset[str]:
        """All values of a name."""
        return frozenset(self._values.get(name, ()))

    def time(self, name: str) -> datetime | None:
        """A time. Without an offset it is in UTC."""
        text = self.text(name)
        try:
            return None if text is None else moment_of(text)
        except (ValueError, OverflowError):
            raise _invalid(name, "a time such as 2026-01-31T08:00:00Z") from None

    def limit(self, default: int, most: int) -> int:
        """The parameter `limit`."""
        text = self.text("limit")
        if text is None:
            return default
        if not (is_number(text, 9) and 1 <= int(text) <= most):
            raise _invalid("limit", f"a whole number from 1 to {most:,}")
        return int(text)

    def cursor(self, kind: Any) -> Any:
        """The parameter `cursor`, as `cursor_of` made it of a value of this type, or None if it is not given."""
        text = self.text("cursor")
        return None if text is None else decoded_cursor(text, kind)


def moment_of(text: str) -> datetime:
    """Return a time in UTC. In a query, the plus of an offset that was not encoded is a space.

    Raises:
        ValueError: It is no time.
        OverflowError: It is out of range.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def is_number(text: str, digits: int = 18) -> bool:
    """Return whether a text is a whole number of at most these digits. The default fits an ID in PostgreSQL."""
    return text.isascii() and text.isdigit() and len(text) <= digits


def decoded_cursor(text: str, kind: Any) -> Any:
    """The value of this type in a cursor.

    Raises:
        Problem: 422 if `cursor_of` has not made it.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise invalid_cursor() from None


def cursor_of(value: Any) -> str:
    """A cursor for the next page."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def invalid_cursor() -> Problem:
    """422: no response has contained this cursor."""
    return _invalid("cursor", "the next_cursor of the page before")


def _invalid(name: str, allowed: str) -> Problem:
    return Problem(422, "invalid_parameter", f"{name}: {allowed}", parameter=name)
