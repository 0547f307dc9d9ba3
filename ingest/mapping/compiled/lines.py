"""Compiles `[[lines]]`, the lists in a document whose elements become order lines."""

from collections.abc import Callable
from typing import Any

from ingest.domain.orders.order import OrderLine
from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conditions import compile_conditions
from ingest.mapping.compiled.declaration import LineFields, Type
from ingest.mapping.compiled.expressions import compile_expression, result_of
from ingest.mapping.compiled.fields import compile_field
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.paths import Read, checked_path, compile_path, list_in, place_of
from ingest.mapping.compiled.pipelines import EvaluationScope
from ingest.mapping.compiled.remainders import Measure
from ingest.mapping.errors import MappingError, Mismatch, type_name

ReadLines = Callable[[Any, Notes], list[OrderLine]]
"""Takes the whole order, and the notes to which it adds."""


def compile_lines(
    declared: LineFields, keys: Keys, scope: EvaluationScope, measure: Measure | None = None
) -> ReadLines:
    """Compile one table of `[[lines]]`, whose rounding is measured if the mapping has a total."""
    elements, at = _elements(declared, keys), _location(declared, keys)
    where = compile_conditions(declared.where, (*keys, "where"))
    sku, quantity, unit_price = _fields(declared, keys, scope)
    description = _description(declared, keys, scope)
    omit_zero = declared.omit_zero

    def read_lines(order: Any, notes: Notes) -> list[OrderLine]:
        found = elements(order, order)
        lines = []
        index = 0
        try:
            for index, each in enumerate(found):  # noqa: B007  the index is for errors
                if where is None or where(each, order):
                    if omit_zero and not (unit_price(each, order) and quantity(each, order)):
                        continue
                    name, pieces, price = sku(each, order), quantity(each, order), unit_price(each, order)
                    text = None if description is None else notes.optional("description", description, each, order)
                    line = OrderLine(name, pieces, price, text)
                    lines.append(line)
                    if measure is not None:
                        measure(line, each, order, notes)
        except Mismatch as mismatch:
            raise mismatch.below(f"{at}[{index}]" if at else "") from None
        return lines

    return read_lines


def _location(declared: LineFields, keys: Keys) -> str:
    if isinstance(declared.source, list):
        return place_of(declared.source[0] if len(declared.source) == 1 else None)
    return place_of(declared.source) if declared.jmespath is None else result_of(keys)


def _fields(declared: LineFields, keys: Keys, scope: EvaluationScope) -> list[Read]:
    def compiled(name: str, kind: Type, needed: str = "") -> Read:
        return compile_field(getattr(declared, name), kind, (*keys, name), scope, needed=needed)

    # A line that has no price is omitted like one whose price is zero.
    price = compiled("unit_price", "decimal", "" if declared.omit_zero else "unit_price")
    return [compiled("sku", "text", "sku"), compiled("quantity", "quantity", "quantity"), price]


def _description(declared: LineFields, keys: Keys, scope: EvaluationScope) -> Read | None:
    if declared.description is None:
        return None
    return compile_field(declared.description, "text", (*keys, "description"), scope)


def _elements(declared: LineFields, keys: Keys) -> Read:
    """Return the closure that reads the list. Without a source, the order itself is the only element."""
    if declared.source is not None and declared.jmespath is not None:
        raise MappingError("contains both `from` and `jmespath`: remove one of them", keys)
    if isinstance(declared.source, list):
        return _all_elements(declared.source, keys, is_optional=declared.optional)
    if declared.source is not None:
        read = compile_path(checked_path(declared.source, (*keys, "from")))
    elif declared.jmespath is not None:
        read = compile_expression(declared.jmespath, keys)
    else:
        return lambda order, _: [order]
    return _list_reader(read, _location(declared, keys), is_optional=declared.optional)


def _all_elements(sources: list[str], keys: Keys, *, is_optional: bool) -> Read:
    """Return the closure that reads several lists as one. Only the first may not be missing."""
    if not sources:
        raise MappingError("needs at least one path", (*keys, "from"))
    lists = [
        _list_reader(
            compile_path(checked_path(source, (*keys, "from", index))),
            place_of(source),
            is_optional=is_optional or index > 0,
        )
        for index, source in enumerate(sources)
    ]
    return lambda order, _: [element for read in lists for element in read(order, order)]


def _list_reader(read: Read, at: str, *, is_optional: bool) -> Read:
    def read_list(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None
        if found.__class__ is list:
            return found
        if (lines := list_in(found)) is not None:
            return lines
        if found is None and is_optional:
            return []
        raise Mismatch("no value for `lines`" if found is None else f"expected `array`, got {type_name(found)}", at)

    return read_list
