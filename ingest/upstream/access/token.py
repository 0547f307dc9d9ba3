"""Reads the response of an authorization server. Pure functions."""

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ingest.domain.fetch.request_headers import check_token

LONGEST_LIFETIME = 86_400.0
_SHORTEST_LIFETIME = 1.0
# No common server accepts a header this long. A server that rejects it would reject each order.
_LONGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    Attributes:
        lifetime: seconds, or None if the server did not send it.
    """

    value: str = field(repr=False)
    lifetime: float | None


def read_token(body: bytes) -> Token:
    """Read a successful response (RFC 6749, section 5.1). Lifetimes are at least a second, and at most a day.

    Raises:
        ValueError: there is no usable token. The message does not quote the response.
    """
    try:
        response: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ValueError("the response is not JSON") from None
    match response:
        case {"access_token": str(value)}:
            kind = response.get("token_type", "bearer")
        case _:
            raise ValueError("the response has no access_token")
    if not str(kind).lower().startswith("bearer"):
        raise ValueError("the token_type is not Bearer")
    if len(value) > _LONGEST:
        raise ValueError(f"the access_token is longer than {_LONGEST:,} characters")
    try:
        return Token(check_token(value), _lifetime(response.get("expires_in")))
    except ValueError:
        raise ValueError("the access_token cannot be sent in a header") from None


def _lifetime(given: object) -> float | None:
    """Some servers send the number as a string."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        seconds = float(given)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) else min(max(seconds, _SHORTEST_LIFETIME), LONGEST_LIFETIME)
