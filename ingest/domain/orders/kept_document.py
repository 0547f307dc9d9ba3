"""Checks whether PostgreSQL can store a document, because `jsonb` supports less than JSON."""

import re
from itertools import accumulate

import msgspec

_NUL = b"\\u0000"
# Numbers that a double can represent, or rounds to zero, but `numeric` cannot.
_TOO_LONG = re.compile(rb"[0-9]{1000}|[0-9][eE]-0*[0-9]{4}")
# PostgreSQL's stack allows several thousand levels. The limit of a decoder depends on the version of Python.
_MOST_LEVELS = 1000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(byte for byte in range(256) if byte not in _STEPS)


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
