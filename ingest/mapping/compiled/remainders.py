"""Finds the amounts that rounding has lost.

The mapping itself rounds prices that are quotients: 3 times 3.333333 is 0.000001 less than 10. A shop may round the amounts of lines
before it writes them, and round their exact sum again.
"""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, DecimalException
from typing import Any

from ingest.domain.orders.order import EXACT, OrderLine
from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conversions import fraction
from ingest.mapping.compiled.declaration import Declared, LineFields
from ingest.mapping.compiled.fields import compile_field, divisors_of
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.pipelines import DIGITS, EvaluationScope
from ingest.mapping.errors import Mismatch

Measure = Callable[[OrderLine, Any, Any, Notes], None]
"""Takes a line, its element, the whole order, and the notes to which it adds."""
_Remainder = Callable[[OrderLine, Any, Any], Decimal | None]


def compile_remainder(lines: LineFields, keys: Keys, scope: EvaluationScope) -> Measure | None:
    """Compile the remainders of prices that are quotients. Return None for prices that are never rounded."""
    remainder = _compile_remainder(lines.unit_price, (*keys, "unit_price"), scope)
    if remainder is None:
        return None

    def measure(line: OrderLine, element: Any, order: Any, notes: Notes) -> None:
        if rest := remainder(line, element, order):
            notes.remainders.append(rest)

    return measure


def compile_unrounded(lines: LineFields, keys: Keys, scope: EvaluationScope) -> Measure | None:
    """Compile the amounts by which a shop has rounded lines. Return None without prices before rounding."""
    if lines.unrounded_price is None:
        return None
    read = compile_field(lines.unrounded_price, "decimal", (*keys, "unrounded_price"), scope)
    remainder = _compile_remainder(lines.unit_price, (*keys, "unit_price"), scope)

    def measure(line: OrderLine, element: Any, order: Any, notes: Notes) -> None:
        try:
            price = read(element, order)
            if price is not None:
                lost = EXACT.multiply(EXACT.subtract(price, line.unit_price), Decimal(line.quantity))
                rest = remainder(line, element, order) if remainder is not None else None
                notes.unrounded.append(EXACT.subtract(lost, rest or Decimal(0)))
        except (Mismatch, DecimalException):
            pass  # then the rounding is unknown

    return measure


def _compile_remainder(unit_price: Declared, keys: Keys, scope: EvaluationScope) -> _Remainder | None:
    divisors = divisors_of(unit_price)
    if not divisors:
        return None
    exact = compile_field(unit_price, "decimal", keys, replace(scope, is_exact=True))
    # A quotient with fewer decimals was not rounded.
    places = min(DIGITS if field.digits is None else field.digits for field in divisors)

    def remainder(line: OrderLine, element: Any, order: Any) -> Decimal | None:
        exponent = line.unit_price.as_tuple().exponent
        if isinstance(exponent, int) and -exponent < places:
            return None
        try:
            rest = fraction(line.quantity) * (fraction(exact(element, order)) - fraction(line.unit_price))
            return EXACT.divide(Decimal(rest.numerator), Decimal(rest.denominator))
        except (Mismatch, DecimalException):
            return None  # the amount of the line has no end either, or is out of range

    return remainder
