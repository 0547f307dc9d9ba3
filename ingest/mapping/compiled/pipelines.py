"""Combines the conversions of a field, in the order of docs/reference/mapping.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled import conversions
from ingest.mapping.compiled.declaration import NO_VALUE, Field, Type
from ingest.mapping.compiled.minor_units import ISO_4217, STRIPE, in_major_units
from ingest.mapping.compiled.paths import Read, compile_path, single_path
from ingest.mapping.compiled.timestamps import constant_timestamp, timestamp_conversion
from ingest.mapping.errors import MappingError, Mismatch

DIGITS = 6
"""The decimal places to which a quotient is rounded by default."""


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """The context of conversions in the mapping.

    Attributes:
        currency: reads the order's currency, or None before it is compiled.
        is_attribute: whether the field may be of any type, and its path may lead to a list of values.
        is_version: whether timestamps order the versions of an order.
        is_exact: whether quotients are fractions instead of rounded decimals.
    """

    currency: Read | None = None
    is_attribute: bool = False
    is_version: bool = False
    is_exact: bool = False


Step = Callable[[Any, Any, Any], Any]
"""Takes a value, its source (an order, or one of its lines), and the whole order. Returns the converted value."""

Divide = Callable[[Decimal, Decimal], Decimal | Fraction]

_BASES: dict[Type, conversions.Convert] = {
    "text": conversions.to_text,
    "integer": conversions.to_integer,
    "decimal": conversions.to_decimal,
    "quantity": conversions.to_quantity,
    "boolean": conversions.to_boolean,
    "json": conversions.to_json,
    "timestamp": constant_timestamp,
}


def base_conversion(kind: Type) -> conversions.Convert:
    """Return the conversion to a type without options."""
    return _BASES[kind]


def pipeline(field: Field, kind: Type, keys: Keys, scope: EvaluationScope) -> Step:
    """Return the conversions of a field, combined into one."""
    match kind:
        case "text":
            steps = [_simple(convert) for convert in _text_conversions(field, keys)]
        case "decimal":
            steps = [_simple(conversions.to_decimal), *_decimal_steps(field, keys, scope)]
        case "timestamp":
            steps = [_simple(timestamp_conversion(field, keys, is_version=scope.is_version))]
        case _:
            steps = [_simple(base_conversion(kind)), *_negation(field)]

    if len(steps) == 1:
        return steps[0]

    def convert(value: Any, source: Any, order: Any) -> Any:
        for step in steps:
            value = step(value, source, order)
        return value

    return convert


def _simple(convert: conversions.Convert) -> Step:
    return lambda value, _source, _order: convert(value)


def _negation(field: Field) -> list[Step]:
    return [_simple(conversions.negated)] if field.negate else []


def _text_conversions(field: Field, keys: Keys) -> list[conversions.Convert]:
    steps: list[conversions.Convert] = [conversions.to_text]
    if field.values is not None:
        steps = [_enumeration(field, keys)]
    elif field.otherwise is not NO_VALUE:
        raise MappingError("`otherwise` needs `values`", (*keys, "otherwise"))
    if field.strip:
        steps.append(str.strip)
    if prefix := field.remove_prefix:
        steps.append(lambda text: text.removeprefix(prefix))
    if field.html:
        steps.append(conversions.unescaped)
    if field.change_case is not None:
        steps.append(str.upper if field.change_case == "upper" else str.lower)
    return steps


def _enumeration(field: Field, keys: Keys) -> conversions.Convert:
    values = {given: _constant_text(value, (*keys, "values", given)) for given, value in (field.values or {}).items()}
    otherwise = None
    if field.otherwise is not NO_VALUE:
        otherwise = _constant_text(field.otherwise, (*keys, "otherwise"))

    def convert(value: Any) -> str:
        # Booleans as written in JSON.
        text = str(value).lower() if value.__class__ is bool else conversions.to_text(value)
        found = values.get(text, otherwise)
        if found is None:
            raise Mismatch("a value that the mapping does not list")
        return found

    return convert


def _constant_text(value: Any, keys: Keys) -> str:
    try:
        return conversions.to_text(value)
    except Mismatch as mismatch:
        raise MappingError(mismatch.problem, keys) from None


def _decimal_steps(field: Field, keys: Keys, scope: EvaluationScope) -> list[Step]:
    steps: list[Step] = []
    match field.minor_units:
        case None:
            pass
        case "currency":
            steps.append(_by_currency(keys, scope, ISO_4217))
        case "stripe":
            steps.append(_by_currency(keys, scope, STRIPE))
        case int() as digits:
            steps.append(_simple(lambda value: conversions.shifted(value, digits)))
    if field.divide_by is not None:
        divide: Divide = conversions.exact_quotient
        if not scope.is_exact:
            divide = partial(conversions.divided, digits=DIGITS if field.digits is None else field.digits)
        steps.append(_division(field.divide_by, divide, keys))
    elif field.digits is not None:
        raise MappingError("`digits` needs `divide_by`", (*keys, "digits"))
    return steps + _negation(field)


def _by_currency(keys: Keys, scope: EvaluationScope, digits: Mapping[str, int]) -> Step:
    currency = scope.currency
    if currency is None:
        raise MappingError("the currency cannot depend on itself", (*keys, "minor_units"))

    return lambda value, _source, order: in_major_units(value, currency(order, order), digits)


def _division(path: str, divide: Divide, keys: Keys) -> Step:
    read = compile_path(single_path(path, (*keys, "divide_by")))

    def convert(value: Any, source: Any, order: Any) -> Any:
        divisor = read(source, order)
        if divisor is None:
            raise Mismatch("a missing divisor")
        return divide(value, conversions.to_decimal(divisor))

    return convert
