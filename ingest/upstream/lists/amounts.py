"""Reads the total amount in an element of a list, exactly."""

import re
from decimal import Decimal

import msgspec

UNREADABLE = Decimal("NaN")
_NUMBER = re.compile(r"-?[0-9]{1,60}(?:\.[0-9]{1,60})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
# As for the totals of documents.
_MAX_MAGNITUDE = 30
_MAX_DIGITS = 60


def read_amount(value: msgspec.Raw) -> Decimal | None:
    """Return an amount, None for null or an empty text, or `UNREADABLE`."""
    text = bytes(value).strip()
    try:
        found = msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return UNREADABLE
    if found in ("", "null"):
        return None
    if not _NUMBER.fullmatch(found):
        return UNREADABLE
    amount = Decimal(found)
    if amount and (abs(amount.adjusted()) > _MAX_MAGNITUDE or len(amount.as_tuple().digits) > _MAX_DIGITS):
        return UNREADABLE
    return amount
