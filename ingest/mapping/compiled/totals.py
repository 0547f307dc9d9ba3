"""Makes the lines of an order add up to the document's own total."""

from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import reduce
from itertools import combinations
from typing import Any

from ingest.domain.orders.order import OrderLine
from ingest.mapping.compiled.declaration import LineFields
from ingest.mapping.compiled.lines import ReadLines, compile_lines
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.paths import Read
from ingest.mapping.compiled.pipelines import EvaluationScope
from ingest.mapping.compiled.remainders import compile_remainder, compile_unrounded
from ingest.mapping.errors import MappingError, Mismatch

ATTRIBUTE = "total_difference"
"""The attribute with the document's total minus the sum of the lines."""
_MOST_TOWARD = 16
# Groups with lines of which all combinations are tried. An order with more has a difference.
_MOST_COMBINED = 12
_ROUNDING, _DIFFERENCE = "ROUNDING", "DIFFERENCE"
# As for the amounts of an order.
_MAX_MAGNITUDE = 30
_MAX_DIGITS = 60
# More digits than any storable sum. The order is checked afterwards.
_WIDE = Context(prec=200)


class TotalComparison:
    """The total of a document, and the lines that depend on it.

    Args:
        read: reads the total from the order.
        toward: groups of tables whose lines are added only if the order then adds up to its total.
        unrounded: tables whose amounts the shop has rounded.
    """

    def __init__(self, read: Read, toward: list[list[ReadLines]], unrounded: list[ReadLines]) -> None:
        self._read = read
        self._toward = toward
        self._unrounded = unrounded

    def complete(self, lines: list[OrderLine], order: Any, notes: Notes) -> Decimal | None:
        """Append the lines that depend on the total, one for rounding, and one for a difference that nothing explains.

        Returns:
            The total minus the sum of all lines but the last one, or None if they are equal or cannot be compared.
        """
        total = notes.optional("total", self._total_of, order, order)
        try:
            lines += _rounding(reduce(_WIDE.add, notes.remainders, Decimal(0)))
            if total is None:
                return None
            difference = _WIDE.subtract(total, _sum(lines))
            if difference and self._toward:
                added = self._combination_of(difference, _unit_of(total, lines), order, notes)
                lines += added
                difference = _WIDE.subtract(difference, _sum(added))
            if difference and self._unrounded:
                lost = self._lost_by(difference, total, order)
                lines += _rounding(lost)
                difference = _WIDE.subtract(difference, lost)
            if not difference:
                return None
            lines.append(OrderLine(_DIFFERENCE, 1, shown := _shown(difference, total)))
        except DecimalException:
            return None  # the order is rejected because of its amounts
        return shown

    def _total_of(self, order: Any, _: Any) -> Decimal | None:
        total: Decimal | None = self._read(order, order)
        if total and (abs(total.adjusted()) > _MAX_MAGNITUDE or len(total.as_tuple().digits) > _MAX_DIGITS):
            raise Mismatch("an amount out of range")
        return total

    def _combination_of(self, difference: Decimal, unit: Decimal, order: Any, notes: Notes) -> list[OrderLine]:
        """Return the lines of the fewest groups that make up the difference, or none.

        A shop rounds the parts of amounts that it removes. With such parts, each line may differ by half a unit.
        """
        groups = [lines for tables in self._toward if (lines := _read(tables, order, notes))][:_MOST_COMBINED]
        sums = [_sum(lines) for lines in groups]
        with_parts = {index for index, lines in enumerate(groups) if _has_parts(lines, unit)}
        for chosen in _combinations(len(groups)):
            rest = _WIDE.subtract(difference, reduce(_WIDE.add, [sums[index] for index in chosen]))
            count = 0 if with_parts.isdisjoint(chosen) else sum(len(groups[index]) for index in chosen)
            if rest.copy_abs() <= _WIDE.multiply(unit, Decimal(count) / 2):
                return [line for index in chosen for line in groups[index]] + _rounding(rest)
        return []

    def _lost_by(self, difference: Decimal, total: Decimal, order: Any) -> Decimal:
        """Return the part of a difference that comes from the shop's own rounding.

        A shop rounds the sum of exact amounts to the decimal places of the total, while it has rounded the amounts of lines before.
        """
        own = Notes()
        for read in self._unrounded:
            read(order, own)
        unit = Decimal((0, (1,), min(int(total.as_tuple().exponent), 0)))
        # Rounding changes an amount by at most half a unit. Otherwise the price is another one, such as the price with tax.
        most = _WIDE.multiply(unit, Decimal("0.500001"))
        if any(amount.copy_abs() > most for amount in own.unrounded):
            return Decimal(0)
        unrounded = reduce(_WIDE.add, own.unrounded, Decimal(0))
        written = _WIDE.subtract(total, difference)
        # Prices that a shop computes as binary fractions are not quite exact.
        exact = _WIDE.add(written, unrounded).quantize(unit.scaleb(-6), context=_WIDE)
        return _WIDE.subtract(exact.quantize(unit, ROUND_HALF_UP, _WIDE), written)


def compile_tables(
    tables: list[LineFields], scope: EvaluationScope
) -> tuple[list[ReadLines], list[list[ReadLines]], list[ReadLines]]:
    """Compile all tables of a mapping with a total. Return the usual ones, the groups toward the total, and the unrounded ones."""
    always: list[ReadLines] = []
    toward: dict[str | int, list[ReadLines]] = {}
    unrounded: list[ReadLines] = []
    for index, table in enumerate(tables):
        keys = ("lines", index)
        compiled = compile_lines(table, keys, scope, compile_remainder(table, keys, scope))
        if table.toward_total:
            group = table.toward_total if isinstance(table.toward_total, str) else index
            toward.setdefault(group, []).append(compiled)
        else:
            always.append(compiled)
        if (measure := compile_unrounded(table, keys, scope)) is not None:
            unrounded.append(compile_lines(table, keys, scope, measure))
    if len(toward) > _MOST_TOWARD:
        raise MappingError(f"`toward_total` is for at most {_MOST_TOWARD} groups of tables", ("lines",))
    return always, list(toward.values()), unrounded


def _read(tables: list[ReadLines], order: Any, notes: Notes) -> list[OrderLine]:
    """Return the lines of a group. It only explains a total, so that a value that does not fit leaves it out."""
    own = Notes()
    try:
        lines = [line for read in tables for line in read(order, own)]
    except Mismatch as mismatch:
        notes.omitted.append(("lines", mismatch))
        return []
    notes.omitted += own.omitted
    return lines + _rounding(reduce(_WIDE.add, own.remainders, Decimal(0)))


def _unit_of(total: Decimal, lines: list[OrderLine]) -> Decimal:
    """Return the unit of the last decimal place in which the document writes its amounts."""
    return Decimal((0, (1,), min(0, *(_exponent(each) for each in (total, *(line.unit_price for line in lines))))))


def _exponent(amount: Decimal) -> int:
    return int(amount.normalize(_WIDE).as_tuple().exponent)


def _has_parts(lines: list[OrderLine], unit: Decimal) -> bool:
    """Return whether a price is a part of an amount, with more decimal places than the document writes."""
    return any(_exponent(line.unit_price) < _exponent(unit) for line in lines)


def _combinations(count: int) -> Iterator[tuple[int, ...]]:
    for most in range(1, count + 1):
        yield from combinations(range(count), most)


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
