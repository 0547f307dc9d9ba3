"""Compiles `[[lines]]`, the lists in a document whose elements become order lines."""

from collections.abc import Callable
from typing import Any

from ingest.domain.orders.order import OrderLine
from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conditions import compile_conditions
from ingest.mapping.compiled.declaration import LineFields, Type
from ingest.mapping.compiled.expressions import compile_expression, result_of
from ingest.mapping.compiled.fields import compile_field
from ingest.mapping.compiled.paths import Read, checked_path, compile_path, place_of
from ingest.mapping.compiled.pipelines import EvaluationScope
from ingest.mapping.errors import MappingError, Mismatch, type_name

ReadLines = Callable[[Any], list[OrderLine]]
"""Takes the whole order."""


def compile_lines(declared: LineFields, keys: Keys, scope: EvaluationScope) -> ReadLines:
    """Compile one table of `[[lines]]`."""
    elements, at = _elements(declared, keys), _location(declared, keys)
    where = compile_conditions(declared.where, (*keys, "where"))
    sku, quantity, unit_price, description = _fields(declared, keys, scope)

    def read_lines(order: Any) -> list[OrderLine]:
        found = elements(order, order)
        lines = []
        index = 0
        try:
            for index, each in enumerate(found):  # noqa: B007  the index is for errors
                if where is None or where(each, order):
                    values = sku(each, order), quantity(each, order), unit_price(each, order), description(each, order)
                    lines.append(OrderLine(*values))
        except Mismatch as mismatch:
            raise mismatch.below(f"{at}[{index}]" if at else "") from None
        return lines

    return read_lines


def _location(declared: LineFields, keys: Keys) -> str:
    return place_of(declared.source) if declared.jmespath is None else result_of(keys)


def _fields(declared: LineFields, keys: Keys, scope: EvaluationScope) -> list[Read]:
    def needed(name: str, kind: Type) -> Read:
        return compile_field(getattr(declared, name), kind, (*keys, name), scope, needed=name)

    description: Read = _nothing
    if declared.description is not None:
        description = compile_field(declared.description, "text", (*keys, "description"), scope)
    return [needed("sku", "text"), needed("quantity", "quantity"), needed("unit_price", "decimal"), description]


def _nothing(_line: Any, _order: Any) -> None:
    pass


def _elements(declared: LineFields, keys: Keys) -> Read:
    """Return the closure that reads the list. Without a source, the order itself is the only element."""
    if declared.source is not None and declared.jmespath is not None:
        raise MappingError("contains both `from` and `jmespath`: remove one of them", keys)
    if declared.source is not None:
        read = compile_path(checked_path(declared.source, (*keys, "from")))
    elif declared.jmespath is not None:
        read = compile_expression(declared.jmespath, keys)
    else:
        return lambda order, _: [order]
    at = _location(declared, keys)

    def read_list(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None
        if found.__class__ is list:
            return found
        if found is None and declared.optional:
            return []
        raise Mismatch("no value for `lines`" if found is None else f"expected `array`, got {type_name(found)}", at)

    return read_list
