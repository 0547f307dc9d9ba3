"""Compares a stored order with its document, field by field and line by line.

It does not share code with the decoding and storing of orders, so that it finds mistakes there.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from itertools import zip_longest
from typing import Any

import msgspec

# The sum of an order fits 60 digits, so values are never rounded here.
_EXACT = Context(prec=200)


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """One row of `orders` as read from the table, with `lines` and `attributes` as JSON text."""

    order_id: str
    status: str
    currency: str
    customer_id: str | None
    country: str | None
    placed_at: datetime
    updated_at: datetime | None
    line_count: int
    total: Decimal
    lines: str
    attributes: str


class _Line(msgspec.Struct, frozen=True):
    sku: str
    quantity: int | Decimal
    unit_price: Decimal
    description: str | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """An order as returned by the external API. Missing members are null."""

    id: str
    status: str
    currency: str
    customer_id: str | None = None
    country: str | None = None
    placed_at: datetime
    updated_at: datetime | None = None
    lines: list[_Line]
    attributes: dict[str, Any] = {}


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_lines = msgspec.json.Decoder(list[_Line]).decode
# Fields that are stored unchanged.
_FIELDS = [name for name in _Document.__struct_fields__ if name not in {"id", "lines", "attributes"}]


def differences(row: StoredOrder, document: bytes) -> list[str]:
    """Return the fields in which a row differs from its document, such as `total` and `lines[3].unit_price`.

    A price must be the same digit by digit, so `2.50` differs from `2.5`.
    """
    try:
        wanted = _decode_document(document)
        lines = _decode_lines(row.lines)
        attributes = msgspec.json.decode(row.attributes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [f"cannot be compared: {error}"]
    found = ["order_id"] if row.order_id != wanted.id else []
    found += [name for name in _FIELDS if getattr(row, name) != getattr(wanted, name)]
    for index, (stored, line) in enumerate(zip_longest(lines, wanted.lines)):
        found += _line_differences(index, stored, line)
    if not _is_same(attributes, wanted.attributes):
        found.append("attributes")
    # The service computes these two itself.
    if row.line_count != len(wanted.lines):
        found.append("line_count")
    if row.total != _total(wanted):
        found.append("total")
    return found


def _line_differences(index: int, stored: _Line | None, line: _Line | None) -> list[str]:
    if stored is None or line is None:
        return [f"lines[{index}]"]
    same_price = stored.unit_price.as_tuple() == line.unit_price.as_tuple()
    if same_price and stored == line:
        return []
    names = [name for name in ("sku", "quantity", "description") if getattr(stored, name) != getattr(line, name)]
    if not same_price:
        names.append("unit_price")
    return [f"lines[{index}].{name}" for name in names]


def _is_same(stored: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal. Python equates true and 1, and PostgreSQL writes 1e16 as an integer."""
    match stored, wanted:
        case dict(), dict():
            return stored.keys() == wanted.keys() and all(_is_same(stored[name], wanted[name]) for name in wanted)
        case list(), list():
            return len(stored) == len(wanted) and all(map(_is_same, stored, wanted))
        case _:
            return isinstance(stored, bool) is isinstance(wanted, bool) and bool(stored == wanted)


def _total(document: _Document) -> Decimal:
    total = Decimal(0)
    for line in document.lines:
        total = _EXACT.fma(line.unit_price, line.quantity, total)
    return total
