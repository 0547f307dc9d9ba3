"""Which documents PostgreSQL can keep: its `jsonb` holds less than JSON allows."""

import re

import msgspec

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUL = b"\\u0000"
# Numbers that a double holds, or rounds to zero, and `numeric` does not.
_TOO_LONG = re.compile(rb"[0-9]{1000}|[0-9][eE]-0*[0-9]{4}")


def storable_document(body: bytes) -> bytes | None:
    """The document as `jsonb` takes it, without a byte order mark; None if it cannot hold it.

    What it cannot hold: NUL characters, halves of surrogate pairs, text that is not UTF-8, numbers beyond those of a double or with a
    thousand digits, and nesting of a thousand levels.
    """
    body = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        body.decode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # In JSON a NUL is this escape, and an escaped backslash before it is none.
    if _NUL in body and _NUL in body.replace(b"\\\\", b""):
        return None
    return None if _TOO_LONG.search(body) else body
