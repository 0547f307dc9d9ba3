"""The rule for order IDs, and how an ID is written into a URL.

IDs are compared character by character. No form of Unicode normalization is applied, so a composed and a decomposed `é` are two IDs.
"""

import re
from urllib.parse import quote

RULE = (
    "1 to 128 printable characters (at most 255 bytes in UTF-8), without blanks at the ends, "
    r"and without a part of dots alone between `/` or `\`"
)
# For OpenAPI documents. Their regular expressions cannot express the whole rule.
SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": 128,
    "pattern": r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$",
    "description": f"An order ID: {RULE}.",
}
# Separates the IDs of a request for several orders. It is not printable, so no ID contains it.
SEPARATOR = "\n"
# Stands for a character that was lost in decoding. The ID of the order was another one.
_LOST = "\N{REPLACEMENT CHARACTER}"
_LONGEST, _MOST_BYTES = 128, 255
# In a URL, `.` and `..` lead to another path, even if they are percent-encoded: many servers decode a path before they resolve it, and some take
# `\` for `/`. A `%` in an ID is encoded as well, so that `%2e` stays as it is.
_dot_segment = re.compile(r"(?:^|[/\\])\.+(?:[/\\]|$)").search
# The literals of JSON and of JavaScript, except an integer of digits, which is an ID. Many programs write these for a missing number.
LITERAL = r"(?:null|true|false|NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[ \t\r]*\Z"
_is_json = re.compile(r'["{\[]|(?![0-9]+\Z)' + LITERAL).match
_is_unreserved = re.compile("[A-Za-z0-9._~-]*").fullmatch


def is_order_id(text: str) -> bool:
    """Return whether a text is an order ID.

    Printable is defined by `str.isprintable`: U+0020 is the only blank, and there are no control or formatting characters. U+FFFD does not
    count as printable.
    """
    return (
        0 < len(text) <= _LONGEST
        and text.isprintable()
        and _LOST not in text
        and text == text.strip()
        and len(text.encode()) <= _MOST_BYTES
        and not _dot_segment(text)
    )


def looks_like_json(line: str) -> bool:
    """Return whether a line of a list is JSON instead of an ID as plain text. Such an ID has to be a JSON string."""
    return _is_json(line) is not None


def quoted_ids(order_ids: str) -> str:
    """Return an order ID, or several with `SEPARATOR`, for a URL: percent-encoded, with commas between the IDs."""
    # Most IDs need no quoting.
    if _is_unreserved(order_ids):
        return order_ids
    return quote(order_ids, safe=SEPARATOR).replace(SEPARATOR, ",")
