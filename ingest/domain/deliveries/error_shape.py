"""Reduces an error to its shape, so that errors that differ only in values count as one."""

import re
from functools import lru_cache

_LONGEST = 200
# In the order in which they are tried. Statuses, type names in backticks and paths tell errors apart, so they stay.
_PARTS = re.compile(
    r"""
      (?P<kept> HTTP\ \d{3}\b | `[^`]*` | \b(?:utf-?(?:8|16)|base64|rfc-?\d{4}|iso-?8601|http/[123](?:\.[01])?)\b )
    | (?P<path> \$(?:\.[A-Za-z_][\w-]*|\[[^\]]*\])* )
    | (?P<quoted> '[^']*' | "[^"]*" | “[^”]*” )
    | (?P<url> [a-z][a-z0-9+.-]*://[^\s'"]+ )
    | (?P<time> \b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\ ?(?:Z|[+-]\d\d:?\d\d))?)? )
    | (?P<number> (?<![\w.#/-])[+-]?\d[\d.,_]*(?:\ ?(?:ms|s|B|KB|MB|%))?(?![\w/-]|\.\w) )
    | (?P<id> \#?\b(?=[\w:./=-]*\d)\w[\w:./=-]*[\w=] | \#?\d )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_INDEX = re.compile(r"\[\d+\]")


@lru_cache(maxsize=4096)
def error_shape(error: str) -> str:
    """Return an error with placeholders for numbers, IDs, times and quoted values. The shape of a shape is itself.

    `HTTP 404` and paths such as `$.lines[].price` are kept, without the indexes of a path.
    """
    return _PARTS.sub(_placeholder, error[: 2 * _LONGEST])[:_LONGEST].rstrip()


def _placeholder(match: re.Match[str]) -> str:
    part = match[0]
    match match.lastgroup:
        case "kept" | "path":
            return _INDEX.sub("[]", part)
        case "quoted":
            return "'…'"
        case "url":
            return "URL"
        case "time":
            return "TIME"
        case "number":
            return "N"
        case _:
            return "ID"
