"""Checks the headers of a request. Messages never contain the value, because it may be a secret."""

import json
import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_LONGEST = 8_000
# https://www.w3.org/TR/trace-context/#traceparent-header, version 00.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
# The HTTP client sets these itself.
_RESERVED = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip


def check_header_name(name: str) -> str:
    """Return the name of a header.

    Raises:
        ValueError: the name is invalid, or is set by the HTTP client.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("must be the name of a header, such as X-Api-Key")
    if name.lower() in _RESERVED:
        raise ValueError(f"{name} is set by the HTTP client")
    return name


def check_header_value(text: str) -> str:
    """Return the value of a header, without surrounding spaces.

    Raises:
        ValueError: it is invalid.
    """
    value = text.strip()
    if not value or len(value) > _LONGEST or not value.isascii() or not value.isprintable():
        raise ValueError(
            f"must be printable ASCII on one line, at most {_LONGEST} characters, because it is sent in a header"
        )
    return value


def is_traceparent(text: str) -> bool:
    """Return whether a text is a W3C trace context."""
    return _TRACEPARENT.fullmatch(text) is not None


def check_token(text: str) -> str:
    """Return a token, without surrounding spaces.

    Raises:
        ValueError: it is invalid.
    """
    token = text.strip()
    if not token:
        raise ValueError("is empty: it must be printable ASCII without spaces, because it is sent in a header")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("must be printable ASCII without spaces, because it is sent in a header")
    return token


def check_secret(text: str) -> str:
    """Return a password or an ID, without surrounding spaces.

    Raises:
        ValueError: it is empty, or contains control characters.
    """
    secret = text.strip()
    if not secret or not secret.isprintable():
        raise ValueError("is empty, or contains control characters")
    return secret


def parse_headers(text: str) -> Mapping[str, str]:
    """Read headers from lines of the form `Name: value`, or from a JSON object.

    Raises:
        ValueError: they are invalid. The message names the header or its line.
    """
    headers: dict[str, str] = {}
    for where, name, value in _pairs(text):
        try:
            checked = check_header_name(name), check_header_value(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if checked[0].lower() in {given.lower() for given in headers}:
            raise ValueError(f"{where}: {name} is given twice")
        headers[checked[0]] = checked[1]
    return headers


def _pairs(text: str) -> list[tuple[str, str, str]]:
    if text.lstrip().startswith("{"):
        return _json_pairs(text)
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon:
            raise ValueError(f"line {number}: must be `Name: value`")
        pairs.append((f"line {number}", name.strip(), value))
    return pairs


def _json_pairs(text: str) -> list[tuple[str, str, str]]:
    try:
        # A list of pairs keeps duplicate names.
        given: Any = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise ValueError("is not a JSON object of strings") from None
    if not all(isinstance(value, str) for _, value in given):
        raise ValueError("is not a JSON object of strings")
    return [(f"header {number}", name, value) for number, (name, value) in enumerate(given, 1)]
