"""Describes a response that is not an order, in a few words and without its values."""

import re

import msgspec

# Larger responses are not decoded for this.
_MOST = 64 * 1024
_MOST_MEMBERS = 5
_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,29}")


def shape_of(body: bytes) -> str | None:
    """Describe a response, such as an HTML page or a small object. Return None if it may be an order."""
    start = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        return "an HTML or XML page"
    if start.startswith(b"["):
        return "a JSON array"
    if not start.startswith(b"{"):
        return "plain text" if start else None
    if len(body) > _MOST:
        return None
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not members:
        return "an empty JSON object"
    # A name may be a value, such as in an object keyed by e-mail address.
    named = [name for name in members if _MEMBER.fullmatch(name)]
    if len(members) > _MOST_MEMBERS or len(named) < len(members):
        return None
    return f"a JSON object with only {', '.join(sorted(named))}"
