"""Cleans a JSON text from outside, so that it can be decoded and stored in PostgreSQL."""

import re
from collections.abc import Callable

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BACKSLASH = ord("\\")
# The first byte of a surrogate in UTF-8, which is invalid. Some Korean characters also begin with it.
_SURROGATE_BYTE = 0xED
_REPLACEMENT = rb"\ufffd"
# Matches pairs of surrogates, then half pairs and NUL, then any other escape, so that an escaped backslash is skipped.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<bad>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000)|\xed[\xa0-\xbf][\x80-\xbf])"
    rb"|\\.",
    re.DOTALL,
)


def ignored() -> None:
    """Count nothing."""


def clean_json(text: bytes, on_replaced: Callable[[], None] = ignored) -> bytes:
    """Return a JSON text without a byte order mark, and with U+FFFD in place of each character that PostgreSQL cannot store.

    These characters are NUL and halves of surrogate pairs. `on_replaced` is called if any was replaced.
    """
    if text[:3] == _BYTE_ORDER_MARK:
        text = text[3:]
    # A search for one byte is much faster than for several.
    if _BACKSLASH in text or _SURROGATE_BYTE in text:
        cleaned = _ESCAPES.sub(_replaced, text)
        if cleaned != text:
            on_replaced()
            return cleaned
    return text


def _replaced(match: re.Match[bytes]) -> bytes:
    return match[0] if match["bad"] is None else _REPLACEMENT
