"""Compiles `[[lines]]`: lists in a document, each element of which becomes an order line."""

from collections.abc import Callable
from typing import Any

from ingest.domain.order import OrderLine
from ingest.mapping.conditions import checked_path, compile_conditions
from ingest.mapping.declaration import LineFields, Type
from ingest.mapping.errors import MappingError, Mismatch, dotted, type_name
from ingest.mapping.expressions import compile_expression
from ingest.mapping.fields import Keys, compile_field
from ingest.mapping.paths import Read, compile_path
from ingest.mapping.pipelines import Scope

ReadLines = Callable[[Any], list[OrderLine]]
"""Takes the whole order."""


def compile_lines(declared: LineFields, keys: Keys, scope: Scope) -> ReadLines:
    """Compile one of `[[lines]]`.

    Raises:
        MappingError: it cannot be used.
    """
    elements = _elements(declared, keys)
    at = _text_of(declared) if declared.jmespath is None else f" (the result of {dotted(keys)})"
    where = compile_conditions(declared.where, (*keys, "where"))
    read = _line(declared, keys, scope)

    def read_lines(order: Any) -> list[OrderLine]:
        found = elements(order, order)
        lines = []
        index = 0
        try:
            for index, element in enumerate(found):  # noqa: B007  the index is for errors
                if where is None or where(element, order):
                    lines.append(read(element, order))
        except Mismatch as mismatch:
            raise mismatch.below(f"{at}[{index}]" if at else "") from None
        return lines

    return read_lines


def _line(declared: LineFields, keys: Keys, scope: Scope) -> Callable[[Any, Any], OrderLine]:
    def needed(name: str, kind: Type) -> Read:
        return compile_field(getattr(declared, name), kind, (*keys, name), scope, needed=name)

    sku, quantity, unit_price = needed("sku", "text"), needed("quantity", "quantity"), needed("unit_price", "decimal")
    described = declared.description
    description = compile_field(described, "text", (*keys, "description"), scope) if described is not None else _nothing

    def read(element: Any, order: Any) -> OrderLine:
        return OrderLine(
            sku(element, order), quantity(element, order), unit_price(element, order), description(element, order)
        )

    return read


def _nothing(_value: Any, _order: Any) -> None:
    return None


def _elements(declared: LineFields, keys: Keys) -> Read:
    """Reads the list; without a source it is the order itself, as one element."""
    if declared.source is not None and declared.jmespath is not None:
        raise MappingError("has both `from` and `jmespath`: remove one of them", keys)
    if declared.source is not None:
        path = checked_path(declared.source, (*keys, "from"))
        return _list(compile_path(path), _text_of(declared), is_optional=declared.optional)
    if declared.jmespath is not None:
        try:
            read = compile_expression(declared.jmespath, dotted(keys))
        except MappingError as error:
            raise error.below(*keys, "jmespath") from None
        return _list(read, f" (the result of {dotted(keys)})", is_optional=declared.optional)
    return lambda order, _: [order]


def _list(read: Read, at: str, *, is_optional: bool) -> Read:
    def read_list(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
        except Mismatch as mismatch:
            raise mismatch.located(at) from None
        if found.__class__ is list:
            return found
        if found is None and is_optional:
            return []
        raise Mismatch("no value for `lines`" if found is None else f"expected `array`, got {type_name(found)}", at)

    return read_list


def _text_of(declared: LineFields) -> str:
    source = declared.source or ""
    return source if source.startswith(("$", "[")) or not source else f".{source}"
