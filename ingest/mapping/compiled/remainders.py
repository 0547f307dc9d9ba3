"""Finds the amounts that rounding has lost.

The mapping itself rounds prices that are quotients: 3 times 3.333333 is 0.000001 less than 10. A shop may round the amounts of lines
before it writes them, and round their exact sum again.
"""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import Any

from ingest.domain.orders.order import EXACT, OrderLine
from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.declaration import Declared
from ingest.mapping.compiled.fields import compile_field, divisors_of
from ingest.mapping.compiled.pipelines import DIGITS, EvaluationScope
from ingest.mapping.errors import Mismatch

Remainder = Callable[[OrderLine, Any, Any], Decimal | None]
"""Takes a line, its element and the whole order."""

Unrounded = Callable[[OrderLine, Decimal | None, Any, Any], Decimal | None]
"""Takes a line, the remainder of its price, its element and the whole order."""


def compile_remainder(unit_price: Declared, keys: Keys, scope: EvaluationScope) -> Remainder | None:
    """Compile the remainder of a price that is a quotient. Return None for a price that is never rounded."""
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
            rest = Fraction(line.quantity) * (Fraction(exact(element, order)) - Fraction(line.unit_price))
            return EXACT.divide(Decimal(rest.numerator), Decimal(rest.denominator))
        except (Mismatch, DecimalException):
            return None  # the amount of the line has no end either, or is out of range

    return remainder


def compile_unrounded(unrounded_price: Declared, keys: Keys, scope: EvaluationScope) -> Unrounded:
    """Compile the amount by which a shop has rounded a line, from its price before rounding."""
    read = compile_field(unrounded_price, "decimal", keys, scope)

    def unrounded(line: OrderLine, rest: Decimal | None, element: Any, order: Any) -> Decimal | None:
        try:
            price = read(element, order)
            if price is None:
                return None
            lost = EXACT.multiply(EXACT.subtract(price, line.unit_price), Decimal(line.quantity))
            return EXACT.subtract(lost, rest) if rest else lost
        except (Mismatch, DecimalException):
            return None  # then the rounding is unknown

    return unrounded
