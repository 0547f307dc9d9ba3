"""Compiles the fields of a mapping from the source of a value and its conversions."""

from typing import Any

import msgspec

from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conditions import compile_conditions, excluding
from ingest.mapping.compiled.conversions import Convert
from ingest.mapping.compiled.declaration import NO_VALUE, OPTIONS, SOURCES, Declared, Field, Type
from ingest.mapping.compiled.expressions import compile_expression, result_of
from ingest.mapping.compiled.paths import Read, checked_path, compile_path, parse_path, place_of, single_path
from ingest.mapping.compiled.pipelines import Contextual, EvaluationScope, base_conversion, pipeline
from ingest.mapping.compiled.reads import MissingValue, read_any, read_each, read_in_context
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

    Raises:
        MappingError: it cannot be used.
    """
    field = Field(path=declared) if isinstance(declared, str) else declared
    if field.type not in {None, kind, *_INSTEAD.get(kind, ())} and not scope.is_attribute:
        raise MappingError(f"`type` requires an attribute, but this field is `{kind}`", (*keys, "type"))
    kind = field.type or (_implied_kind(field) if kind == "json" else kind)
    _check_options(field, kind, keys)
    default = _constant(field.default, kind, (*keys, "default"))
    if field.first is not None or field.cases is not None:
        return _chosen(field, kind, keys, scope, default, needed)
    read = excluding(_source(field, kind, keys, scope), field.none)
    convert = pipeline(field, kind, keys, scope)
    return _converting(field, read, convert, MissingValue(default, needed, _text_of(field, keys)))


def _converting(field: Field, read: Read, convert: Convert | Contextual, missing: MissingValue) -> Read:
    path = None if field.path is None else parse_path(field.path)
    if path is not None and path.is_list:
        return read_each(read, convert, missing)
    if isinstance(convert, Contextual):
        return read_in_context(read, convert, missing)
    return read_any(read, convert, missing)


def _implied_kind(field: Field) -> Type:
    """Return the type implied by the conversions of a field that may be of any type."""
    implied = [kinds[0] for name, kinds in OPTIONS.items() if _is_given(getattr(field, name))]
    if implied:
        return implied[0]
    return "json" if field.concat is None else "text"


def _source(field: Field, kind: Type, keys: Keys, scope: EvaluationScope) -> Read:
    given = _given_sources(field)
    if len(given) != 1:
        raise _needs_one_source(given, keys)
    below = (*keys, given[0])
    if field.path is not None:
        is_single = kind != "json" and not scope.is_attribute
        return compile_path((single_path if is_single else checked_path)(field.path, below))
    if field.jmespath is not None:
        return compile_expression(field.jmespath, keys)
    if field.requested:
        raise MappingError("`requested` is only for `id` of [order]", below)
    return _composed(field, kind, below, scope)


def _given_sources(field: Field) -> list[str]:
    return [name for name in SOURCES if _is_given(getattr(field, name))]


def _needs_one_source(given: list[str], keys: Keys) -> MappingError:
    named = ", ".join(f"`{name}`" for name in SOURCES)
    found = " and ".join(f"`{name}`" for name in given) or "none"
    return MappingError(f"needs exactly one of {named} (found: {found})", keys)


def _is_given(value: Any) -> bool:
    return value is not None and value is not NO_VALUE and value is not False and value != ""


def _composed(field: Field, kind: Type, keys: Keys, scope: EvaluationScope) -> Read:
    if field.concat is not None:
        return _concat([_text_or_child(child, (*keys, index), scope) for index, child in enumerate(field.concat)])
    constant = _constant(field.value, kind, keys)
    return lambda _value, _order: constant


def _chosen(field: Field, kind: Type, keys: Keys, scope: EvaluationScope, default: Any, needed: str) -> Read:
    """Return the closure of the first or matching field of several, which inherit the conversions of the whole."""
    if len(given := _given_sources(field)) != 1:
        raise _needs_one_source(given, keys)
    if field.cases is not None:
        needed = needed if default is None else ""
        return _or_default(_cases(field, kind, (*keys, "cases"), scope, needed), default)
    each = [
        compile_field(_inheriting(child, field), kind, (*keys, "first", index), scope)
        for index, child in enumerate(field.first or ())
    ]
    at = " or ".join(
        _text_of(Field(path=child) if isinstance(child, str) else child, keys) for child in field.first or ()
    )

    def read_first(value: Any, order: Any) -> Any:
        for read in each:
            found = read(value, order)
            if found is not None:
                return found
        if default is None and needed:
            raise Mismatch(f"no value for `{needed}`", at)
        return default

    return read_first


def _inheriting(declared: Declared, outer: Field) -> Field:
    field = Field(path=declared) if isinstance(declared, str) else declared
    names = [name for name in (*OPTIONS, "type") if not _is_given(getattr(field, name))]
    inherited = {name: getattr(outer, name) for name in names}
    return msgspec.structs.replace(field, none=[*field.none, *outer.none], **inherited)


def _or_default(read: Read, default: Any) -> Read:
    if default is None:
        return read

    def read_or_default(value: Any, order: Any) -> Any:
        found = read(value, order)
        return default if found is None else found

    return read_or_default


def _cases(outer: Field, kind: Type, keys: Keys, scope: EvaluationScope, needed: str) -> Read:
    cases = [
        (
            compile_conditions(field.when, (*keys, index, "when")),
            compile_field(
                _inheriting(msgspec.structs.replace(field, when=None), outer),
                kind,
                (*keys, index),
                scope,
                needed=needed,
            ),
        )
        for index, field in enumerate(outer.cases or ())
    ]

    def read_case(value: Any, order: Any) -> Any:
        for holds, read in cases:
            if holds is None or holds(value, order):
                return read(value, order)
        return MissingValue(None, needed, "").value()

    return read_case


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
