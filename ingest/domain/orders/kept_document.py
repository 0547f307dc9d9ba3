"""Which documents PostgreSQL can keep: its `jsonb` holds less than JSON allows."""

import re
from itertools import accumulate

import msgspec

_NUL = b"\\u0000"
# Numbers that a double holds, or rounds to zero, and `numeric` does not.
_TOO_LONG = re.compile(rb"[0-9]{1000}|[0-9][eE]-0*[0-9]{4}")
# PostgreSQL's stack has room for some thousands of levels; how many a decoder takes depends on the version of Python.
_MOST_LEVELS = 1000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(byte for byte in range(256) if byte not in _STEPS)


def storable_document(body: bytes) -> bytes | None:
    """The document if `jsonb` can hold it, else None.

    What it cannot hold: NUL characters, halves of surrogate pairs, text that is not UTF-8, numbers beyond those of a double or with a
    thousand digits, and nesting of more than a thousand levels.
    """
    try:
        body.decode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # In JSON a NUL is this escape, and an escaped backslash before it is none.
    if _NUL in body and _NUL in body.replace(b"\\\\", b""):
        return None
    return None if _TOO_LONG.search(body) or _is_deep(body) else body


def _is_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= _MOST_LEVELS:
        return False  # nearly always: a bracket in a string counts as well
    brackets = _STRING.sub(b"", body).translate(None, _NO_STEPS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > _MOST_LEVELS
