"""Converts single values to text, numbers and amounts, or raises `Mismatch`.

Amounts are never converted to a binary float, because the decoder keeps the digits of JSON numbers. A float is always infinite, and
stands for a number that a decimal cannot represent.
"""

import html
import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import reduce
from typing import Any

from ingest.domain.orders.order import EXACT
from ingest.mapping.errors import Mismatch, type_name

Convert = Callable[[Any], Any]

_DECIMAL_TEXT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_DIGITS = re.compile(r"-?[0-9]{1,20}", re.ASCII)
MAX_MAGNITUDE = 60
"""An amount with a larger exponent is out of range for all later checks."""
JSON_SAFE = 2**53
"""A double can represent every integer up to this."""
_MAX_DEPTH = 100
# Used instead of the context of the thread, which user code may have changed.
ROUNDING = Context(prec=60, traps=[InvalidOperation, DivisionByZero, Overflow])


def to_text(value: Any) -> str:
    """Return a text, or the digits of an integer, because IDs are often integers."""
    if value.__class__ is str:
        return value
    if value.__class__ is int:
        return str(value)
    raise Mismatch(f"expected `str` or `int`, got {type_name(value)}")


def to_integer(value: Any) -> int:
    """Return an integer from a number or a text."""
    if value.__class__ is int:
        return value
    if value.__class__ is str and _DIGITS.fullmatch(value):
        return int(value)
    if value.__class__ is Decimal and abs(value.adjusted()) <= MAX_MAGNITUDE and value == value.to_integral_value():
        return int(value)
    raise Mismatch(_is_not("an integer", value))


def to_decimal(value: Any) -> Decimal:
    """Return an exact number from a JSON number, or from a text written like a JSON number."""
    if value.__class__ is str and _DECIMAL_TEXT.fullmatch(value):
        return Decimal(value)
    if value.__class__ is Decimal:
        return value
    if value.__class__ is int:
        return Decimal(value)
    if value.__class__ is float:
        raise Mismatch("a number out of range")
    raise Mismatch(_is_not("a decimal", value))


def unescaped(text: str) -> str:
    """Return a text with HTML's character references replaced."""
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        raise Mismatch("a character reference out of range") from None


def to_quantity(value: Any) -> int | Decimal:
    """Return an integer if the number is integral, else a decimal."""
    if value.__class__ is int and -JSON_SAFE <= value <= JSON_SAFE:
        return value
    number = to_decimal(value)
    if abs(number.adjusted()) <= MAX_MAGNITUDE and number == number.to_integral_value():
        integer = int(number)
        if -JSON_SAFE <= integer <= JSON_SAFE:
            return integer
    return number


def to_boolean(value: Any) -> bool:
    """Return a boolean, including from `"true"`, `"false"`, 1 or 0."""
    if value.__class__ is bool:
        return value
    if value.__class__ in {int, str} and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise Mismatch(_is_not("a boolean", value))


_BOOLEANS: dict[str | int, bool] = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}


def to_json(value: Any) -> Any:
    """Return any value unchanged, if it can be stored."""
    _check_json(value, _MAX_DEPTH)
    return value


def _check_json(value: Any, levels: int) -> None:
    if value.__class__ is float:
        raise Mismatch("a number out of range")
    if value.__class__ is not dict and value.__class__ is not list:
        return
    if not levels:
        raise Mismatch(f"nested in more than {_MAX_DEPTH} levels")
    for inner in value.values() if value.__class__ is dict else value:
        _check_json(inner, levels - 1)


def shifted(number: Decimal, digits: int) -> Decimal:
    """Convert an amount from minor units (cents) to major units."""
    if not number.is_finite() or abs(number.adjusted()) > MAX_MAGNITUDE:
        raise Mismatch("an amount out of range")
    sign, figures, exponent = number.as_tuple()
    return Decimal((sign, figures, int(exponent) - digits))


def negated(number: Any) -> Any:
    """Return the number with the opposite sign, except for zero."""
    if not number:
        return number
    return number.copy_negate() if number.__class__ is Decimal else -number


def divided(number: Decimal, divisor: Decimal, digits: int) -> Decimal:
    """Return a quotient, rounded (half to even) to at most `digits` decimals."""
    if not divisor:
        raise Mismatch("a division by zero")
    try:
        quotient = ROUNDING.divide(number, divisor)
        exponent = quotient.as_tuple().exponent
        if isinstance(exponent, int) and exponent < -digits:
            quotient = quotient.quantize(Decimal((0, (1,), -digits)), context=ROUNDING)
    except ArithmeticError:
        raise Mismatch("an amount out of range") from None
    return quotient


def fraction(number: Decimal | int | Fraction) -> Fraction:
    """Return a number as a fraction, unless that would take too long."""
    if isinstance(number, Decimal) and (
        abs(number.adjusted()) > MAX_MAGNITUDE or len(number.as_tuple().digits) > MAX_MAGNITUDE
    ):
        raise Mismatch("an amount out of range")
    return Fraction(number)


def exact_quotient(number: Decimal, divisor: Decimal) -> Fraction:
    """Return a quotient without rounding."""
    if not divisor:
        raise Mismatch("a division by zero")
    return fraction(number) / fraction(divisor)


def added(amounts: Iterable[Decimal]) -> Decimal:
    """Return the exact sum of amounts."""
    try:
        return reduce(EXACT.add, amounts)
    except ArithmeticError:
        raise Mismatch("an amount out of range") from None


def _is_not(wanted: str, value: Any) -> str:
    # The type of a text does not explain the error.
    name = type_name(value)
    return f"got a {name} that is not {wanted}" if value.__class__ is str else f"expected {wanted}, got {name}"
