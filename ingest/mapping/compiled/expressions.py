"""Compiles JMESPath expressions with exact numbers.

The package supports only floats. `ExactFunctions` accepts `Decimal`, into which the decoder converts JSON numbers. Numbers in the
expression are also converted, because a float rarely equals a decimal: `2.55` would differ from the 2.55 of a document.
"""

import math
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from typing import Any

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions, signature
from jmespath.parser import ParsedResult

from ingest.domain.orders.order import EXACT
from ingest.domain.toml_errors import Keys, dotted
from ingest.mapping.compiled.conversions import MAX_MAGNITUDE, to_decimal
from ingest.mapping.compiled.paths import Read
from ingest.mapping.errors import MappingError, Mismatch

# Errors of functions for values of unexpected types or sizes.
_FAILURES = (JMESPathError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
_FLOAT, _DECIMAL = "float", "Decimal"
# An average may have infinitely many digits.
_DIVIDING = Context(prec=28, traps=[InvalidOperation, DivisionByZero, Overflow])
_TAKE_REFERENCES = ("map", "max_by", "min_by", "sort_by")
_numbers = msgspec.json.Encoder(decimal_format="number")


class ExactFunctions(Functions):
    """JMESPath's functions, with decimals in place of floats."""

    def _get_allowed_pytypes(self, types: Any) -> Any:
        allowed, elements = super()._get_allowed_pytypes(types)  # type: ignore[misc]  # its stubs lack it
        if _FLOAT in allowed:
            allowed = [*allowed, _DECIMAL]
        return allowed, [(*names, _DECIMAL) if _FLOAT in names else names for names in elements]

    def _convert_to_jmespath_type(self, name: Any) -> Any:
        return super()._convert_to_jmespath_type(_FLOAT if name == _DECIMAL else name)  # type: ignore[misc]  # as above

    @signature({"types": []})
    def _func_type(self, value: Any) -> Any:
        return self._convert_to_jmespath_type(type(value).__name__)

    @signature({"types": []})
    def _func_to_number(self, value: Any) -> Any:
        if value.__class__ in {int, Decimal}:
            return value
        try:
            return to_decimal(value) if value.__class__ is str else None
        except Mismatch:
            return None

    @signature({"types": []})
    def _func_to_string(self, value: Any) -> str:
        return value if isinstance(value, str) else _numbers.encode(value).decode()

    @signature({"types": ["number"]})
    def _func_ceil(self, value: Any) -> Any:
        return math.ceil(_writable(value))

    @signature({"types": ["number"]})
    def _func_floor(self, value: Any) -> Any:
        return math.floor(_writable(value))

    @signature({"types": ["number"]})
    def _func_abs(self, value: Any) -> Any:
        return value.copy_abs() if value.__class__ is Decimal else abs(value)

    @signature({"types": ["array-number"]})
    def _func_sum(self, values: Any) -> Any:
        with localcontext(EXACT):
            return sum(values)

    @signature({"types": ["array-number"]})
    def _func_avg(self, values: Any) -> Any:
        if not values:
            return None
        with localcontext(EXACT):
            total = sum(values, Decimal(0))
        return _DIVIDING.divide(total, Decimal(len(values)))


def _writable(number: Any) -> Any:
    """Return the number if it is in the range of amounts. Converting `1e999999999` would take minutes and all memory."""
    if number.__class__ is Decimal and number.adjusted() > MAX_MAGNITUDE:
        raise OverflowError
    return number


def result_of(keys: Keys) -> str:
    """Return the location of an expression's result, for errors."""
    return f" (the result of {dotted(keys)})"


def compile_expression(text: str, keys: Keys) -> Read:
    """Compile the expression `jmespath` of a field or of lines at `keys`, which is applied to a line or to the order."""
    try:
        compiled = ParsedResult(text, _checked(jmespath.compile(text).parsed))
    except MappingError as error:
        raise error.below(*keys, "jmespath") from None
    except (JMESPathError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise MappingError(f"not a JMESPath expression: {message}", (*keys, "jmespath")) from None
    options, name = jmespath.Options(custom_functions=ExactFunctions()), dotted(keys)

    def read(value: Any, _: Any) -> Any:
        try:
            return compiled.search(value, options=options)
        except _FAILURES as error:
            # Its text would contain the value.
            raise Mismatch(
                f"the JMESPath expression of {name} cannot be applied ({type(error).__name__})", ""
            ) from None

    return read


def _checked(node: Any, *, may_be_reference: bool = False) -> Any:
    """Return a copy of a parsed expression, because the package caches the original, with decimals in place of floats.

    JMESPath looks up functions when they run, so an unknown function would fail only with the first order.

    Raises:
        MappingError: it contains an unknown function, a literal that cannot be stored, or a reference to an expression (`&key`)
            outside the functions that take references.
    """
    if node["type"] == "expref" and not may_be_reference:
        raise MappingError("& is only for the functions " + ", ".join(f"{name}()" for name in _TAKE_REFERENCES))
    name = node["value"] if node["type"] == "function_expression" else ""
    if name and name not in ExactFunctions.FUNCTION_TABLE:
        raise MappingError(f"unknown JMESPath function {name}()")
    children = [
        _checked(child, may_be_reference=name in _TAKE_REFERENCES) if isinstance(child, dict) else child
        for child in node["children"]
    ]
    value = {"value": _exact(node["value"])} if node["type"] == "literal" else {}
    return {**node, "children": children, **value}


def _exact(literal: Any) -> Any:
    match literal:
        case float():
            if not math.isfinite(literal):
                raise MappingError("a number that is not finite")
            return Decimal(repr(literal))
        case str():
            if not literal.isascii() and any("\ud800" <= character <= "\udfff" for character in literal):
                raise MappingError("a text contains half of a surrogate pair")
            return literal
        case list():
            return [_exact(each) for each in literal]
        case dict():
            return {_exact(key): _exact(each) for key, each in literal.items()}
        case _:
            return literal
