"""Cleans and checks JSON texts from outside for PostgreSQL, because `jsonb` supports less than JSON."""

import re
from collections.abc import Callable
from itertools import accumulate

import msgspec

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BACKSLASH = ord("\\")
# The first byte of a surrogate in UTF-8, which is invalid. Some Korean characters also begin with it.
_SURROGATE_BYTE = 0xED
_UNICODE_ESCAPE = rb"\u"
_REPLACEMENT = rb"\ufffd"
# Matches pairs of surrogates, then half pairs and NUL, then any other escape, so that an escaped backslash is skipped.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<bad>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000)|\xed[\xa0-\xbf][\x80-\xbf])"
    rb"|\\.",
    re.DOTALL,
)
_NUL = b"\\u0000"
# Numbers that a double can represent, or rounds to zero, but `numeric` cannot.
_TOO_LONG = re.compile(rb"[0-9]{1000}|[0-9][eE]-0*[0-9]{4}")
# PostgreSQL's stack allows several thousand levels. The limit of a decoder depends on the version of Python.
_MOST_LEVELS = 1000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(byte for byte in range(256) if byte not in _STEPS)


def ignored() -> None:
    """Count nothing."""


def clean_json(text: bytes, on_replaced: Callable[[], None] = ignored) -> bytes:
    """Return a JSON text without a byte order mark, and with U+FFFD in place of each character that PostgreSQL cannot store.

    These characters are NUL and halves of surrogate pairs. `on_replaced` is called if any was replaced.
    """
    if text[:3] == _BYTE_ORDER_MARK:
        text = text[3:]
    # A search for one byte is much faster than for two, which is faster than the expression.
    if (_BACKSLASH in text and _UNICODE_ESCAPE in text) or _SURROGATE_BYTE in text:
        cleaned = _ESCAPES.sub(_replaced, text)
        if cleaned != text:
            on_replaced()
            return cleaned
    return text


def _replaced(match: re.Match[bytes]) -> bytes:
    return match[0] if match["bad"] is None else _REPLACEMENT


def storable_document(body: bytes) -> bytes | None:
    """Return the document if `jsonb` can store it, else None.

    It cannot store NUL characters, halves of surrogate pairs, text that is not UTF-8, numbers beyond a double or with a thousand
    digits, and more than a thousand levels of nesting.
    """
    try:
        body.decode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # In JSON a NUL is this escape, unless its backslash is escaped.
    if _NUL in body and _NUL in body.replace(b"\\\\", b""):
        return None
    return None if _TOO_LONG.search(body) or _is_deep(body) else body


def _is_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= _MOST_LEVELS:
        return False  # nearly always, because a bracket in a string counts as well
    brackets = _STRING.sub(b"", body).translate(None, _NO_STEPS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > _MOST_LEVELS
