"""Finds the part of a line's total that rounding its unit price loses: 3 times 3.333333 is 0.000001 less than 10."""

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
