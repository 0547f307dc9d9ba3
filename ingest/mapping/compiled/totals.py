"""Compares the sum of an order's lines with the document's own total."""

from collections.abc import Iterable, Iterator
from decimal import Context, Decimal, DecimalException
from functools import reduce
from itertools import combinations
from typing import Any

from ingest.domain.orders.order import OrderLine
from ingest.mapping.compiled.lines import ReadLines
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.paths import Read
from ingest.mapping.errors import Mismatch

ATTRIBUTE = "total_difference"
"""The attribute with the document's total minus the sum of the lines."""
MOST_TOWARD = 8
"""Tables of lines that depend on the total. All their combinations are tried."""
_ROUNDING = "ROUNDING"
# As for the amounts of an order.
_MAX_MAGNITUDE = 30
_MAX_DIGITS = 60
# More digits than any storable sum. The order is checked afterwards.
_WIDE = Context(prec=200)


class TotalComparison:
    """The total of a document, and the lines that depend on it.

    Args:
        read: reads the total from the order.
        toward: tables of lines that are added only if the order then adds up to its total.
    """

    def __init__(self, read: Read, toward: list[ReadLines]) -> None:
        self._read = read
        self._toward = toward

    def complete(self, lines: list[OrderLine], order: Any, notes: Notes) -> Decimal | None:
        """Append the lines that depend on the total, and one for rounding.

        Returns:
            The total minus the sum of the lines, or None if they are equal or cannot be compared.
        """
        total = notes.optional("total", self._total_of, order, order)
        try:
            lines += _rounding(reduce(_WIDE.add, notes.remainders, Decimal(0)))
            if total is None:
                return None
            difference = _WIDE.subtract(total, _sum(lines))
            if difference and self._toward:
                added = self._combination_of(difference, order, notes)
                lines += added
                difference = _WIDE.subtract(difference, _sum(added))
            if difference and _is_rounding(difference, total, notes.unrounded):
                lines += _rounding(difference)
                return None
            return _shown(difference, total) if difference else None
        except DecimalException:
            return None  # the order is rejected because of its amounts

    def _total_of(self, order: Any, _: Any) -> Decimal | None:
        total: Decimal | None = self._read(order, order)
        if total and (abs(total.adjusted()) > _MAX_MAGNITUDE or len(total.as_tuple().digits) > _MAX_DIGITS):
            raise Mismatch("an amount out of range")
        return total

    def _combination_of(self, difference: Decimal, order: Any, notes: Notes) -> list[OrderLine]:
        """Return the lines of the fewest tables that make up the difference, or none."""
        for tables in _combinations([lines for read in self._toward if (lines := _read(read, order, notes))]):
            added = [line for lines in tables for line in lines]
            if _sum(added) == difference:
                return added
        return []


def _read(read: ReadLines, order: Any, notes: Notes) -> list[OrderLine]:
    own = Notes()
    lines = read(order, own)
    notes.omitted += own.omitted
    return lines + _rounding(reduce(_WIDE.add, own.remainders, Decimal(0)))


def _combinations(tables: list[list[OrderLine]]) -> Iterator[tuple[list[OrderLine], ...]]:
    for count in range(1, len(tables) + 1):
        yield from combinations(tables, count)


def _is_rounding(difference: Decimal, total: Decimal, unrounded: list[Decimal]) -> bool:
    """Return whether the shop's own rounding explains a difference.

    The total is the sum of exact amounts, rounded to its own decimal places, while the amounts of the lines were rounded before.
    """
    exponent = total.as_tuple().exponent
    if not unrounded or not isinstance(exponent, int):
        return False
    rest = _WIDE.subtract(difference, reduce(_WIDE.add, unrounded))
    # Half a unit of the last place. Prices that a shop computes as binary fractions are themselves not quite exact.
    return rest.copy_abs() <= _WIDE.scaleb(Decimal("0.500001"), exponent)


def _shown(amount: Decimal, total: Decimal) -> Decimal:
    """Return an amount with as many decimal places as the total, or more if it needs them."""
    exponent = min(int(amount.normalize(_WIDE).as_tuple().exponent), int(total.as_tuple().exponent), 0)
    return amount.quantize(Decimal((0, (1,), exponent)), context=_WIDE)


def _rounding(amount: Decimal) -> list[OrderLine]:
    return [OrderLine(_ROUNDING, 1, amount)] if amount else []


def _sum(lines: Iterable[OrderLine]) -> Decimal:
    total = Decimal(0)
    for line in lines:
        total = _WIDE.fma(line.unit_price, line.quantity, total)
    return total
