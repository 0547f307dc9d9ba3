"""The order document: parsed once at the border, checked, immutable."""

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import (
    Clamped,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Rounded,
)
from typing import Annotated

import msgspec

_ORDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", re.ASCII)

# Amounts are added without rounding: what does not fit 60 digits is refused rather than approximated.
_EXACT = Context(prec=60, traps=[Inexact, Rounded, Clamped, InvalidOperation, DivisionByZero, Overflow])
_ZERO = Decimal(0)
_MAX_MAGNITUDE = 30
_JSON_SAFE = 2**53


class InvalidOrderId(ValueError):
    """A text that is no order ID."""


class InvalidDocument(ValueError):
    """A document that is no order; the message says what is wrong and where, without its values."""


def parse_order_id(text: str) -> str:
    """Return `text` if it is an order ID.

    Raises:
        InvalidOrderId: naming what is allowed.
    """
    if _ORDER_ID.fullmatch(text) is None:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise InvalidOrderId(f"{shown!r} is no order ID: 1 to 64 of A-Z a-z 0-9 . _ : - with a letter or digit first")
    return text


class TruncatedDocument(InvalidDocument):
    """A document that ends before its JSON does: most likely the rest of it was lost on its way."""


class OrderLine(msgspec.Struct, frozen=True, gc=False):
    """One line; quantity and price may be zero or negative (returns, discounts, adjustments)."""

    sku: str
    quantity: Annotated[int, msgspec.Meta(ge=-_JSON_SAFE, le=_JSON_SAFE)]
    unit_price: Decimal
    description: str | None = None


class Order(msgspec.Struct, frozen=True, dict=True):
    """An order as the external API describes it. Times are aware, money is exact."""

    id: str
    status: str
    currency: str
    placed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    lines: tuple[OrderLine, ...]
    updated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    customer_id: str | None = None
    country: str | None = None

    @property
    def total(self) -> Decimal:
        """The exact sum of quantity times unit price over all lines."""
        # Computed once; functools.cached_property takes a lock before Python 3.12.
        total: Decimal | None = self.__dict__.get("total")
        if total is None:
            total = self.__dict__["total"] = _exact_total(self.lines)
        return total

    def lines_json(self) -> bytes:
        """The lines as a JSON array, prices as strings, so that no reader makes floats of them."""
        return msgspec.json.encode(self.lines)


def _exact_total(lines: Sequence[OrderLine]) -> Decimal:
    total, add, multiply = _ZERO, _EXACT.add, _EXACT.multiply
    for line in lines:
        # The plus applies the context to the price itself: with a quantity of 0 its digits would go unnoticed.
        price = line.unit_price if line.quantity else _EXACT.plus(line.unit_price)
        total = add(total, multiply(price, line.quantity))
    return total


_decoder = msgspec.json.Decoder(Order)

# Decimal accepts more than JSON can write (`1_000`, ` 1.5 `, the digits of every script), and does not keep the text. So texts
# are checked in the document itself. One search, some 0.2 µs a line, passes nearly every document: it finds texts that are not
# just digits and a point. It knows the key by its usual spelling; a key with an escaped letter contains \u00.
_UNUSUAL_PRICE = re.compile(rb'"unit_price"\s*+:\s*+"(?!-?[0-9][0-9.]*+(?<!\.)")')
_ESCAPED_ASCII = b"\\u00"
_DECIMAL_TEXT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)


class _WrittenLine(msgspec.Struct, frozen=True, gc=False):
    """A line's price as it stands in the document."""

    unit_price: msgspec.Raw


class _WrittenLines(msgspec.Struct, frozen=True, gc=False):
    lines: tuple[_WrittenLine, ...]


_written_decoder = msgspec.json.Decoder(_WrittenLines)


def decode_order(body: bytes, order_id: str) -> Order:
    """Parse and check the document of the order `order_id`.

    Raises:
        TruncatedDocument: if it breaks off.
        InvalidDocument: if it is not JSON, not an order, another order's, or holds what no exact
            store can keep (NUL characters, infinite or absurdly large amounts).
    """
    try:
        order = _decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise (_truncated(body) if _breaks_off(body, str(error)) else InvalidDocument(str(error))) from error
    except RecursionError as error:
        raise InvalidDocument("nested too deeply") from error
    if order.id != order_id:
        raise InvalidDocument("the document is of another order - at `$.id`")
    # One byte is found much faster than several.
    has_escapes = b"\\" in body
    if _UNUSUAL_PRICE.search(body) or (has_escapes and _ESCAPED_ASCII in body):
        _check_written_prices(body)
    _check_amounts(order)
    _check_times(order)
    # The escape is how a NUL gets into a JSON string; the search is cheap, the look at each text is not.
    if has_escapes and b"\\u0000" in body:
        _check_texts(order)
    return order


def _check_written_prices(body: bytes) -> None:
    for index, line in enumerate(_written_decoder.decode(body).lines):
        written = bytes(line.unit_price)
        # What is no text is a number, which JSON's own grammar has passed.
        if written.startswith(b'"') and _DECIMAL_TEXT.fullmatch(msgspec.json.decode(written, type=str)) is None:
            raise InvalidDocument(
                f"a price that is not written as JSON writes numbers - at `$.lines[{index}].unit_price`"
            )


def _breaks_off(body: bytes, error: str) -> bool:
    # A number that breaks off after its sign, point or exponent is an invalid one that ends where the body does.
    return error == "Input data was truncated" or (
        error.startswith("JSON is malformed: invalid ") and error.endswith(f" (byte {len(body)})")
    )


def _truncated(body: bytes) -> TruncatedDocument:
    return TruncatedDocument(f"the document breaks off after {len(body)} bytes" if body else "the document is empty")


def _check_amounts(order: Order) -> None:
    for index, line in enumerate(order.lines):
        price = line.unit_price
        if not price.is_finite() or abs(price.adjusted()) > _MAX_MAGNITUDE:
            raise InvalidDocument(f"an amount out of range - at `$.lines[{index}].unit_price`")
    try:
        order.total  # noqa: B018  it raises where a sum would have to be rounded
    except DecimalException as error:
        raise InvalidDocument("the amounts have too many digits to be added exactly - at `$.lines`") from error


def _check_times(order: Order) -> None:
    # The first and last year cannot be moved to UTC from every offset.
    for name, moment in (("placed_at", order.placed_at), ("updated_at", order.updated_at)):
        if moment is not None and not 1 < moment.year < 9999:
            raise InvalidDocument(f"a year out of range - at `$.{name}`")


def _check_texts(order: Order) -> None:
    texts = [order.status, order.currency, order.customer_id, order.country]
    for line in order.lines:
        texts += (line.sku, line.description)
    if any(text is not None and "\0" in text for text in texts):
        raise InvalidDocument("a text holds a NUL character")
