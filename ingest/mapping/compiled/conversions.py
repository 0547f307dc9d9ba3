"""Converts single values: text, numbers, amounts, moments.

Amounts never pass through a binary float: the decoder keeps the digits of JSON numbers, and makes a float, which is infinite, only of
one that no decimal can hold.
"""

import html
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any

from ingest.mapping.errors import Mismatch, type_name

Convert = Callable[[Any], Any]

_DECIMAL_TEXT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_DIGITS = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MAGNITUDE = 60
"""An amount with an exponent beyond this is out of range for every check that follows."""
JSON_SAFE = 2**53
"""Up to here a double holds every integer."""
_MAX_DEPTH = 100
# Not the context of the thread, which user code may have changed.
_ROUNDING = Context(prec=60, traps=[InvalidOperation, DivisionByZero, Overflow])


def to_text(value: Any) -> str:
    """A text; integers, which IDs often are, as their digits."""
    if value.__class__ is str:
        return value
    if value.__class__ is int:
        return str(value)
    raise Mismatch(f"expected `str` or `int`, got {type_name(value)}")


def to_integer(value: Any) -> int:
    """An integer, or the text of one."""
    if value.__class__ is int:
        return value
    if value.__class__ is str and _DIGITS.fullmatch(value):
        return int(value)
    if value.__class__ is Decimal and abs(value.adjusted()) <= MAX_MAGNITUDE and value == value.to_integral_value():
        return int(value)
    raise Mismatch(_is_not("an integer", value))


def to_decimal(value: Any) -> Decimal:
    """An exact number: a JSON number, or a text written like one."""
    if value.__class__ is str:
        return _decimal_of(value)
    if value.__class__ is Decimal:
        return value
    if value.__class__ is int:
        return Decimal(value)
    if value.__class__ is float:
        raise Mismatch("a number out of range")
    raise Mismatch(_is_not("a decimal", value))


def _decimal_of(text: str) -> Decimal:
    # Nearly every amount is written as Python writes it, which is faster to see than the whole pattern.
    try:
        number = Decimal(text)
    except InvalidOperation:
        pass
    else:
        if str(number) == text and "E" not in text and number.is_finite():
            return number
        if _DECIMAL_TEXT.fullmatch(text):
            return number
    raise Mismatch(_is_not("a decimal", text))


def unescaped(text: str) -> str:
    """A text with HTML's character references replaced.

    Raises:
        Mismatch: a reference is a number of thousands of digits, which Python refuses to read.
    """
    try:
        return html.unescape(text)
    except ValueError:
        raise Mismatch("a character reference out of range") from None


def to_quantity(value: Any) -> int | Decimal:
    """An integer where the number is one; else a decimal."""
    if value.__class__ is int and -JSON_SAFE <= value <= JSON_SAFE:
        return value
    number = to_decimal(value)
    if abs(number.adjusted()) <= MAX_MAGNITUDE and number == number.to_integral_value():
        integer = int(number)
        if -JSON_SAFE <= integer <= JSON_SAFE:
            return integer
    return number


def to_boolean(value: Any) -> bool:
    """A boolean, also as `"true"`, `"false"`, 1 or 0."""
    if value.__class__ is bool:
        return value
    if value.__class__ in {int, str} and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise Mismatch(_is_not("a boolean", value))


_BOOLEANS: dict[str | int, bool] = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}


def to_json(value: Any) -> Any:
    """Any value as it is, if it can be stored."""
    if value.__class__ is dict or value.__class__ is list or value.__class__ is float:
        _check_json(value, _MAX_DEPTH)
    return value


def _check_json(value: Any, levels: int) -> None:
    if not levels:
        raise Mismatch(f"nested in more than {_MAX_DEPTH} levels")
    if value.__class__ is float:
        if not math.isfinite(value):
            raise Mismatch("a number out of range")
        return
    for inner in value.values() if value.__class__ is dict else value:
        if inner.__class__ in _CHECKED:
            _check_json(inner, levels - 1)


_CHECKED = {dict, list, float}


def iso_timestamp(zone: tzinfo | None) -> Convert:
    """Moments in ISO 8601; those without a time zone are in `zone`, or refused."""

    def convert(value: Any) -> datetime:
        if value.__class__ is str:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise Mismatch("got a `str` that is not a timestamp in ISO 8601") from None
        elif isinstance(value, datetime):
            moment = value  # a constant of the mapping
        else:
            raise Mismatch(f"expected `str` with a timestamp, got {type_name(value)}")
        if moment.tzinfo is not None:
            return moment
        if zone is None:
            raise Mismatch("a timestamp without a time zone, and the mapping names none")
        return moment.replace(tzinfo=zone)

    return convert


def unix_timestamp(unit: str) -> Convert:
    """Moments as a number of seconds, or milliseconds, since 1970; `unit` is the argument of `timedelta`."""
    microseconds = Decimal(timedelta(**{unit: 1}) // timedelta(microseconds=1))

    def convert(value: Any) -> datetime:
        if value.__class__ is datetime:
            return value
        number = to_decimal(value)
        if abs(number.adjusted()) > MAX_MAGNITUDE:
            raise Mismatch("a timestamp out of range")
        try:
            return _EPOCH + timedelta(microseconds=int(_ROUNDING.multiply(number, microseconds)))
        except OverflowError:
            raise Mismatch("a timestamp out of range") from None

    return convert


def shifted(number: Decimal, digits: int) -> Decimal:
    """An amount in minor units (cents) in major ones.

    Raises:
        Mismatch: it is too large or too small for any amount.
    """
    if not number.is_finite() or abs(number.adjusted()) > MAX_MAGNITUDE:
        raise Mismatch("an amount out of range")
    sign, figures, exponent = number.as_tuple()
    return Decimal((sign, figures, int(exponent) - digits))


def negated(number: Any) -> Any:
    """The number with the other sign, exactly; zero has none."""
    if not number:
        return number
    return -number if number.__class__ is int else number.copy_negate()


def divided(number: Decimal, divisor: Decimal, digits: int) -> Decimal:
    """A quotient, rounded (half to even) if it has more than `digits` after the point.

    Raises:
        Mismatch: it cannot be computed.
    """
    if not divisor:
        raise Mismatch("a division by zero")
    try:
        quotient = _ROUNDING.divide(number, divisor)
        exponent = quotient.as_tuple().exponent
        if isinstance(exponent, int) and exponent < -digits:
            quotient = quotient.quantize(Decimal((0, (1,), -digits)), context=_ROUNDING)
    except ArithmeticError:
        raise Mismatch("an amount out of range") from None
    return quotient


def _is_not(wanted: str, value: Any) -> str:
    # The type alone would not tell what is wrong with a text.
    name = type_name(value)
    return f"got a {name} that is not {wanted}" if value.__class__ is str else f"expected {wanted}, got {name}"
