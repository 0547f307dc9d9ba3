"""The immutable order, parsed and validated once."""

import decimal
import math
import re
from datetime import datetime
from decimal import Context, Decimal, DecimalException
from typing import Annotated, Any

import msgspec

from ingest.domain.orders.order_id import RULE, is_order_id

# Nearly every ID. All others are checked more slowly.
_is_usual_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII).fullmatch

# Amounts are added without rounding. A sum of more than 60 digits is rejected, not approximated.
_SIGNALS = (decimal.Inexact, decimal.Rounded, decimal.Clamped, decimal.InvalidOperation, decimal.DivisionByZero)
EXACT = Context(prec=60, traps=[*_SIGNALS, decimal.Overflow])
_MAX_MAGNITUDE = 30
_JSON_SAFE = 2**53  # up to this integer, every JSON parser keeps all digits
WHOLE_QUANTITY = msgspec.Meta(ge=-_JSON_SAFE, le=_JSON_SAFE)


class InvalidOrderId(ValueError):
    """A text that is not an order ID."""


class InvalidDocument(ValueError):
    """A document that is not an order. The message contains the problem and its location, without values."""


class SkippedDocument(InvalidDocument):
    """A document that the shop itself does not count as an order, such as an abandoned checkout."""


def parse_order_id(text: str) -> str:
    """Return `text` if it is an order ID.

    Raises:
        InvalidOrderId: it is not an order ID. The message describes the allowed form.
    """
    if not _is_usual_id(text) and not is_order_id(text):
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise InvalidOrderId(f"{shown!r} is not an order ID: {RULE}")
    return text


class TruncatedDocument(InvalidDocument):
    """A document with incomplete JSON, most likely truncated in transfer."""


class OrderLine(msgspec.Struct, frozen=True, gc=False):
    """An order line. Quantity and price may be zero or negative (returns, discounts), and the quantity may be fractional."""

    sku: str
    quantity: Annotated[int, WHOLE_QUANTITY] | Decimal
    unit_price: Decimal
    description: str | None = None


class Order(msgspec.Struct, frozen=True):
    """An order as described by the external API. Times are timezone-aware, amounts are exact.

    Attributes:
        attributes: further data to store, any JSON object.
    """

    id: str
    status: str
    currency: str
    placed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    lines: tuple[OrderLine, ...]
    updated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    customer_id: str | None = None
    country: str | None = None
    attributes: dict[str, Any] = {}

    @property
    def total(self) -> Decimal:
        """The exact sum of quantity times unit price over all lines."""
        total = Decimal(0)
        for line in self.lines:
            # `plus` applies the context to the price, because a quantity of 0 would leave its digits unchecked.
            price = line.unit_price if line.quantity else EXACT.plus(line.unit_price)
            total = EXACT.fma(price, line.quantity, total)
        return total

    def attributes_json(self) -> bytes:
        """Return the attributes as a JSON object, with decimals as strings."""
        return msgspec.json.encode(self.attributes) if self.attributes else b"{}"

    def lines_json(self) -> bytes:
        """Return the lines as a JSON array, with decimals as strings so that no reader converts them to floats."""
        return msgspec.json.encode(self.lines)


def number(text: str) -> float:
    """Return a number of the attributes. msgspec itself takes 18 µs for one near the maximum, or seconds for a large document.

    Raises:
        ValueError: it is too large. msgspec adds the location.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return value


_decoder = msgspec.json.Decoder(Order, float_hook=number)

# Decimal accepts more than JSON numbers (`1_000`, ` 1.5 `, the digits of every script), and does not keep the text. Prices and
# quantities given as strings are therefore checked in the document itself. A search for string prices that are not just digits and a
# point is enough for nearly every document. A key with an escaped letter contains \u00, and a string never decodes to an integer.
_UNUSUAL_PRICE = re.compile(rb'unit_price"\s*+:\s*+"(?!-?[0-9][0-9.]*+(?<!\.)")')
_ESCAPED_ASCII = b"\\u00"
# A JSON string can contain NUL only as this escape. Searching for it is cheaper than checking each text.
_ESCAPED_NUL = b"\\u0000"
# As a number, because `in` tries a number first, and a byte string costs an exception.
BACKSLASH = ord("\\")
_DECIMAL_TEXT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)


class _WrittenLine(msgspec.Struct, frozen=True, gc=False):
    """The decimals of a line as written in the document."""

    unit_price: msgspec.Raw
    quantity: msgspec.Raw


class _WrittenLines(msgspec.Struct, frozen=True, gc=False):
    lines: tuple[_WrittenLine, ...]


_written_decoder = msgspec.json.Decoder(_WrittenLines)


def decode_order(body: bytes, order_id: str) -> Order:
    """Parse and check the document of the order `order_id`.

    Raises:
        TruncatedDocument: it is truncated.
        InvalidDocument: it is not JSON, not an order, belongs to another order, or contains values that cannot be stored
            exactly (NUL characters, infinite or extremely large amounts).
    """
    try:
        order = _decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(body, error) from error
    if order.id != order_id:
        raise InvalidDocument("the document belongs to another order - at `$.id`")
    are_whole = all(line.quantity.__class__ is int for line in order.lines)
    if not are_whole or _UNUSUAL_PRICE.search(body) or (BACKSLASH in body and _ESCAPED_ASCII in body):
        _check_written_decimals(body)
    check_order(order, body)
    return order


class _Identified(msgspec.Struct, frozen=True, gc=False):
    id: str


_id_decoder = msgspec.json.Decoder(_Identified)


def document_id(body: bytes) -> str | None:
    """Return the order ID in a document, or None without one."""
    try:
        return _id_decoder.decode(body).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def undecodable(body: bytes, error: Exception) -> InvalidDocument:
    """Return the error for a document that msgspec could not decode, `TruncatedDocument` if its end is missing."""
    if isinstance(error, RecursionError):
        return InvalidDocument("nested too deeply")
    message = str(error)
    # A number that is truncated after its sign, point or exponent is reported as invalid at the end of the body.
    if message == "Input data was truncated" or (
        message.startswith("JSON is malformed: invalid ") and message.endswith(f" (byte {len(body)})")
    ):
        return TruncatedDocument(
            f"the document is truncated after {len(body)} bytes" if body else "the document is empty"
        )
    return InvalidDocument(message)


def check_order(order: Order, body: bytes) -> None:
    """Check amounts, years and NUL characters, which types cannot express. All texts come from the JSON document `body`.

    Raises:
        InvalidDocument: it cannot be stored exactly.
    """
    _check_amounts(order)
    check_times(order.placed_at, order.updated_at)
    # A search for one byte is much faster than for several.
    if BACKSLASH in body and _ESCAPED_NUL in body:
        _check_texts(order)


def check_times(placed_at: datetime, updated_at: datetime | None) -> None:
    """Check that the times of an order can be converted to UTC.

    Raises:
        InvalidDocument: a time is in the first or last years, which cannot be converted from every offset.
    """
    if not 1 < placed_at.year < 9999:
        raise InvalidDocument("a year out of range - at `$.placed_at`")
    if updated_at is not None and not 1 < updated_at.year < 9999:
        raise InvalidDocument("a year out of range - at `$.updated_at`")


def _check_written_decimals(body: bytes) -> None:
    for index, line in enumerate(_written_decoder.decode(body).lines):
        for name, raw in (("unit_price", line.unit_price), ("quantity", line.quantity)):
            written = bytes(raw)
            # Otherwise it is a number, which the JSON parser has validated.
            if written.startswith(b'"') and _DECIMAL_TEXT.fullmatch(msgspec.json.decode(written, type=str)) is None:
                raise InvalidDocument(
                    f"a decimal that is not written like a JSON number - at `$.lines[{index}].{name}`"
                )


def _check_amounts(order: Order) -> None:
    for index, line in enumerate(order.lines):
        if _is_out_of_range(line.unit_price):
            raise InvalidDocument(f"an amount out of range - at `$.lines[{index}].unit_price`")
        if not isinstance(line.quantity, int) and _is_out_of_range(line.quantity):
            raise InvalidDocument(f"an amount out of range - at `$.lines[{index}].quantity`")
    try:
        order.total  # noqa: B018  raises if the sum would have to be rounded
    except DecimalException as error:
        raise InvalidDocument("the amounts have too many digits to be added exactly - at `$.lines`") from error


def _is_out_of_range(amount: Decimal) -> bool:
    return not amount.is_finite() or abs(amount.adjusted()) > _MAX_MAGNITUDE


def _check_texts(order: Order) -> None:
    texts = {name: getattr(order, name) for name in ("status", "currency", "customer_id", "country")}
    for index, line in enumerate(order.lines):
        texts[f"lines[{index}].sku"] = line.sku
        texts[f"lines[{index}].description"] = line.description
    # In the attributes' JSON a NUL is this escape, unless its backslash is escaped.
    texts["attributes"] = order.attributes_json().decode().replace("\\\\", "").replace("\\u0000", "\0")
    for name, text in texts.items():
        if text is not None and "\0" in text:
            raise InvalidDocument(f"a text contains a NUL character - at `$.{name}`")
