"""Decodes the documents that most APIs send only as far as storing needs, with prices as the texts in the document.

A row contains the lines as JSON, with prices as texts, and the sum of their amounts. Without a `Decimal` for each price, an order takes
13 % less CPU time at an API of 0-2 ms. All other documents, and invalid ones, are decoded by `decode_order`, which reports errors.
"""

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from ingest.domain.orders.order import BACKSLASH, EXACT, WHOLE_QUANTITY, Order, check_times, decode_order, number

# A price that is written as its `Decimal` is: with a leading zero, an exponent or more decimals it might not be.
_PRICE = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.([0-9]{1,6}))?")
_MOST_PLACES = 6
# In a document it stands once for each line, or more often where a price or the array of lines is repeated. The last one counts,
# but the others have to be decimals as well, which only `decode_order` checks.
_PRICE_KEY = b'"unit_price"'
# NUL, or a letter of that key.
_ESCAPED = re.compile(rb"\\u00(?:00|[5-7])")
# Prices repeat. How many are remembered: one that is not takes as long as its `Decimal`.
_MOST_PRICES = 1024


class _PlainLine(msgspec.Struct, frozen=True, gc=False):
    """The fields of `OrderLine`, in the same order."""

    sku: str
    quantity: Annotated[int, WHOLE_QUANTITY]
    unit_price: str
    description: str | None = None


class PlainOrder(msgspec.Struct, frozen=True, gc=False):
    """An order to be stored, as `Order`; only `decode_plain` makes one.

    Attributes:
        total: the exact sum of quantity times unit price over all lines.
    """

    id: str
    status: str
    currency: str
    placed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    lines: list[_PlainLine]
    updated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    customer_id: str | None = None
    country: str | None = None
    attributes: dict[str, Any] = {}
    # Never what the document has under this name.
    total: str = msgspec.field(default="", name="")

    def attributes_json(self) -> bytes:
        """Return the attributes as a JSON object."""
        return msgspec.json.encode(self.attributes)

    def lines_json(self) -> bytes:
        """Return the lines as a JSON array, with prices as strings."""
        return msgspec.json.encode(self.lines)


StorableOrder = Order | PlainOrder

_decoder = msgspec.json.Decoder(PlainOrder, float_hook=number)
_set_field = msgspec.structs.force_setattr


def decode_plain(body: bytes, order_id: str) -> StorableOrder:
    """Parse and check the document of the order `order_id`, for storing it.

    Raises:
        TruncatedDocument: it is truncated.
        InvalidDocument: it is not valid, see `decode_order`.
    """
    try:
        order = _decoder.decode(body)
        _set_field(order, "total", _exact_total(order.lines))  # nobody else has the order yet
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _UnusualPrice):
        return decode_order(body, order_id)
    if order.id != order_id or body.count(_PRICE_KEY) != len(order.lines) or _has_special_escapes(body):
        return decode_order(body, order_id)
    check_times(order.placed_at, order.updated_at)
    return order


def _has_special_escapes(body: bytes) -> bool:
    # A search for one byte is much faster than for several.
    return BACKSLASH in body and _ESCAPED.search(body) is not None


class _UnusualPrice(Exception):
    """A price that is perhaps none, or would be written in another way."""


class _Prices(dict[str, tuple[int, int]]):
    """Prices, each as a multiple of the smallest amount, and how many decimals it has."""

    def __missing__(self, price: str) -> tuple[int, int]:
        match = _PRICE.fullmatch(price)
        if match is None:
            raise _UnusualPrice
        places = len(match[1] or "")
        if len(self) >= _MOST_PRICES:
            self.clear()
        found = self[price] = int(price.replace(".", "")) * 10 ** (_MOST_PLACES - places), places
        return found


_prices = _Prices()


def _exact_total(lines: list[_PlainLine]) -> str:
    total = most_places = 0
    for line in lines:
        units, places = _prices[line.unit_price]
        total += units * line.quantity
        if places > most_places:  # noqa: PLR1730  `max` takes as long as the rest of the loop
            most_places = places
    # No digits are lost: no amount has more decimals.
    total //= 10 ** (_MOST_PLACES - most_places)
    return str(EXACT.scaleb(Decimal(total), -most_places))
