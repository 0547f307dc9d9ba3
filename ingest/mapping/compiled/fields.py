"""Compiles the fields of a mapping from the source of a value and its conversions."""

from typing import Any

import msgspec

from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conditions import compile_conditions, excluding
from ingest.mapping.compiled.conversions import added
from ingest.mapping.compiled.declaration import NO_VALUE, OPTIONS, SOURCES, Declared, Field, Type
from ingest.mapping.compiled.expressions import compile_expression, result_of
from ingest.mapping.compiled.paths import Read, checked_path, compile_path, parse_path, place_of, single_path
from ingest.mapping.compiled.pipelines import EvaluationScope, base_conversion, pipeline
from ingest.mapping.errors import MappingError, Mismatch

# Further types that values of a field may have.
_INSTEAD: dict[Type, tuple[Type, ...]] = {"quantity": ("decimal", "integer")}


def compile_field(declared: Declared, kind: Type, keys: Keys, scope: EvaluationScope, *, needed: str = "") -> Read:
    """Compile a field to a closure that returns its converted value.

    Args:
        declared: as in the file.
        kind: the type, unless the field sets another.
        keys: its location in the file.
        scope: the context of conversions in the mapping.
        needed: the name of the order's field, if it requires a value.
    """
    field = _as_field(declared)
    if field.type not in {None, kind, *_INSTEAD.get(kind, ())} and not scope.is_attribute:
        raise MappingError(f"`type` requires an attribute, but this field is `{kind}`", (*keys, "type"))
    kind = field.type or (_implied_kind(field) if kind == "json" else kind)
    _check_options(field, kind, keys)
    default = _constant(field.default, kind, (*keys, "default"))
    source = _source_name(field, keys)
    if source == "first":
        return _first(field, kind, keys, scope, default, needed)
    if source == "cases":
        return _cases(field, kind, keys, scope, default, needed)
    read = excluding(_source(field, kind, (*keys, source), scope), field.none)
    convert = pipeline(field, kind, keys, scope)
    is_list = field.path is not None and parse_path(field.path).is_list
    at = _text_of(field, keys)

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            if found is None:
                return _or_missing(default, needed)
            if is_list:
                return [convert(element, value, order) for element in found]
            return convert(found, value, order)
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None

    return read_field


def unless_none(declared: Declared, none: str) -> Field:
    """Return a field for which a further value counts as no value."""
    field = _as_field(declared)
    return msgspec.structs.replace(field, none=[*field.none, none])


def _as_field(declared: Declared) -> Field:
    return Field(path=declared) if isinstance(declared, str) else declared


def _or_missing(default: Any, needed: str, at: str | None = None) -> Any:
    """Return the default of a field without a value, or raise a mismatch if the order requires a value."""
    if default is None and needed:
        raise Mismatch(f"no value for `{needed}`", at)
    return default


def _implied_kind(field: Field) -> Type:
    """Return the type implied by the conversions of a field that may be of any type."""
    implied = [kinds[0] for name, kinds in OPTIONS.items() if _is_given(getattr(field, name))]
    if implied:
        return implied[0]
    if field.sum is not None:
        return "decimal"
    return "json" if field.concat is None else "text"


def _source_name(field: Field, keys: Keys) -> str:
    given = [name for name in SOURCES if _is_given(getattr(field, name))]
    if len(given) != 1:
        named = ", ".join(f"`{name}`" for name in SOURCES)
        found = " and ".join(f"`{name}`" for name in given) or "none"
        raise MappingError(f"needs exactly one of {named} (found: {found})", keys)
    return given[0]


def _source(field: Field, kind: Type, keys: Keys, scope: EvaluationScope) -> Read:
    if field.path is not None:
        is_single = kind != "json" and not scope.is_attribute
        return compile_path((single_path if is_single else checked_path)(field.path, keys))
    if field.jmespath is not None:
        return compile_expression(field.jmespath, keys[:-1])
    if field.concat is not None:
        return _concat([_text_or_child(child, (*keys, index), scope) for index, child in enumerate(field.concat)])
    if field.sum is not None:
        return _sum([_amount(child, (*keys, index), scope) for index, child in enumerate(field.sum)], keys)
    if field.requested:
        raise MappingError("`requested` is only for `id` of [order]", keys)
    constant = _constant(field.value, kind, keys)
    return lambda _value, _order: constant


def _is_given(value: Any) -> bool:
    return value is not None and value is not NO_VALUE and value is not False and value != ""


def _first(field: Field, kind: Type, keys: Keys, scope: EvaluationScope, default: Any, needed: str) -> Read:
    """Return the closure of the first field with a value. The fields inherit the conversions of the whole."""
    fields = [_as_field(child) for child in field.first or ()]
    each = [
        compile_field(_inheriting(child, field), kind, (*keys, "first", index), scope)
        for index, child in enumerate(fields)
    ]
    at = " or ".join(_text_of(child, keys) for child in fields)

    def read_first(value: Any, order: Any) -> Any:
        for read in each:
            found = read(value, order)
            if found is not None:
                return found
        return _or_missing(default, needed, at)

    return read_first


def _cases(field: Field, kind: Type, keys: Keys, scope: EvaluationScope, default: Any, needed: str) -> Read:
    """Return the closure of the field whose condition holds. The fields inherit the conversions of the whole."""
    needed = needed if default is None else ""
    cases = []
    for index, case in enumerate(field.cases or ()):
        below = (*keys, "cases", index)
        holds = compile_conditions(case.when, (*below, "when"))
        inheriting = _inheriting(msgspec.structs.replace(case, when=None), field)
        cases.append((holds, compile_field(inheriting, kind, below, scope, needed=needed)))

    def read_case(value: Any, order: Any) -> Any:
        for holds, read in cases:
            if holds is None or holds(value, order):
                found = read(value, order)
                return default if found is None else found
        return _or_missing(default, needed)

    return read_case


def _inheriting(field: Field, outer: Field) -> Field:
    names = [name for name in (*OPTIONS, "type") if not _is_given(getattr(field, name))]
    inherited = {name: getattr(outer, name) for name in names}
    return msgspec.structs.replace(field, none=[*field.none, *outer.none], **inherited)


def _text_or_child(declared: Declared, keys: Keys, scope: EvaluationScope) -> Read:
    if isinstance(declared, str):
        return lambda _value, _order: declared
    # Each is a single text, even in an attribute.
    return compile_field(declared, "text", keys, EvaluationScope(scope.currency))


def _concat(each: list[Read]) -> Read:
    def read_all(value: Any, order: Any) -> Any:
        texts = [read(value, order) for read in each]
        return None if None in texts else "".join(texts)

    return read_all


def _amount(declared: Declared, keys: Keys, scope: EvaluationScope) -> Read:
    field = _as_field(declared)
    if divisors_of(field):
        raise MappingError("`divide_by` is for the whole sum", (*keys, "divide_by"))
    return compile_field(field, "decimal", keys, EvaluationScope(scope.currency))


def _sum(each: list[Read], keys: Keys) -> Read:
    if not each:
        raise MappingError("needs at least one field", keys)

    def read_all(value: Any, order: Any) -> Any:
        amounts = [amount for read in each if (amount := read(value, order)) is not None]
        return added(amounts) if amounts else None

    return read_all


def divisors_of(declared: Declared) -> list[Field]:
    """Return the fields that divide, among a field and the fields within it."""
    field = _as_field(declared)
    within = [*(field.first or ()), *(field.cases or ()), *(field.sum or ())]
    found = [divisor for child in within for divisor in divisors_of(child)]
    return [field, *found] if field.divide_by is not None else found


def _constant(value: Any, kind: Type, keys: Keys) -> Any:
    """Return a value of the file, converted like a value of a document, or None if it is missing."""
    if value is NO_VALUE:
        return None
    try:
        return base_conversion(kind)(value)
    except Mismatch as mismatch:
        raise MappingError(mismatch.problem, keys) from None


def _check_options(field: Field, kind: Type, keys: Keys) -> None:
    if field.when is not None:
        raise MappingError("`when` is only for the fields of `cases`", (*keys, "when"))
    for name, kinds in OPTIONS.items():
        value = getattr(field, name)
        if _is_given(value) and kind not in kinds:
            wanted = " or ".join(f"`{kind}`" for kind in kinds)
            raise MappingError(f"`{name}` requires the type {wanted}, but this field is `{kind}`", (*keys, name))


def _text_of(field: Field, keys: Keys) -> str:
    """Return the source of the value for errors, or an empty text if its parts report their own sources."""
    return place_of(field.path) if field.jmespath is None else result_of(keys)
