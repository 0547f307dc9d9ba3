"""Compares the sum of an order's lines with the document's own total."""

from collections.abc import Iterable
from decimal import Context, Decimal, DecimalException
from functools import reduce
from typing import Any

from ingest.domain.orders.order import OrderLine
from ingest.mapping.compiled.lines import ReadLines
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.paths import Read
from ingest.mapping.errors import Mismatch

ATTRIBUTE = "total_difference"
"""The attribute with the document's total minus the sum of the lines."""
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
        toward: lines that are added if they bring the sum closer to the total.
    """

    def __init__(self, read: Read, toward: list[ReadLines]) -> None:
        self._read = read
        self._toward = toward

    def complete(self, lines: list[OrderLine], order: Any, notes: Notes) -> Decimal | None:
        """Append the lines that depend on the total, and one for the remainders of rounded prices.

        Returns:
            The total minus the sum of the lines, or None if they are equal or cannot be compared.
        """
        total = notes.optional("total", self._total_of, order, order)
        own = Notes()
        further = [line for read in self._toward for line in read(order, own)]
        if further and _brings_closer(total, [*lines, *_rounding(notes)], [*further, *_rounding(own)]):
            lines += further
            notes.remainders += own.remainders
        notes.omitted += own.omitted
        lines += _rounding(notes)
        return None if total is None else _difference(total, lines)

    def _total_of(self, order: Any, _: Any) -> Decimal | None:
        total: Decimal | None = self._read(order, order)
        if total and (abs(total.adjusted()) > _MAX_MAGNITUDE or len(total.as_tuple().digits) > _MAX_DIGITS):
            raise Mismatch("an amount out of range")
        return total


def _difference(total: Decimal, lines: Iterable[OrderLine]) -> Decimal | None:
    try:
        return _WIDE.subtract(total, _sum(lines)) or None
    except DecimalException:
        return None  # the order is rejected because of its amounts


def _brings_closer(total: Decimal | None, lines: list[OrderLine], further: list[OrderLine]) -> bool:
    if total is None:
        return True
    try:
        short = _WIDE.subtract(total, _sum(lines))
        return _WIDE.subtract(short, _sum(further)).copy_abs() < short.copy_abs()
    except DecimalException:
        return True


def _rounding(notes: Notes) -> list[OrderLine]:
    amount = reduce(_WIDE.add, notes.remainders, Decimal(0))
    return [OrderLine(_ROUNDING, 1, amount)] if amount else []


def _sum(lines: Iterable[OrderLine]) -> Decimal:
    total = Decimal(0)
    for line in lines:
        total = _WIDE.fma(line.unit_price, line.quantity, total)
    return total
