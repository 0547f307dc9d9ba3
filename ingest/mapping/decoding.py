"""Decodes JSON with exact numbers."""

import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from ingest.domain.orders.order import InvalidDocument, undecodable


def _number(text: str) -> Decimal | float:
    """Return a JSON number with a point or an exponent exactly, or infinity if a decimal cannot represent it."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return math.inf


_decode = msgspec.json.Decoder(float_hook=_number).decode
_decode_strictly = msgspec.json.Decoder(float_hook=Decimal).decode


def decode_json_strictly(body: bytes) -> Any:
    """Decode a document that is encoded again, and reject numbers that a decimal cannot represent.

    Raises:
        InvalidDocument: as for `decode_json`, or for such a number.
    """
    try:
        return decode_json(body, _decode_strictly)
    except InvalidOperation:
        raise InvalidDocument("a number out of range") from None


def decode_json(body: bytes, decode: Callable[[bytes], Any] = _decode) -> Any:
    """Decode a document.

    Raises:
        TruncatedDocument: it is truncated.
        InvalidDocument: it is not JSON.
    """
    try:
        return decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(body, error) from error
