"""Compiles the conditions `where` of lines and `when` of cases."""

from collections.abc import Callable
from typing import Any

from ingest.mapping.compiled.declaration import NO_VALUE, Condition
from ingest.mapping.compiled.paths import Read, compile_path, single_path
from ingest.mapping.errors import MappingError

Holds = Callable[[Any, Any], bool]
"""Takes a value (an order, or one of its lines) and the whole order."""


def compile_conditions(declared: Condition | list[Condition] | None, keys: tuple[str | int, ...]) -> Holds | None:
    """Compile the conditions at `keys`, which must all hold. Return None without conditions."""
    if declared is None:
        return None
    if isinstance(declared, Condition):
        return _compile_one(declared, keys)
    each = [_compile_one(condition, (*keys, index)) for index, condition in enumerate(declared)]
    return lambda value, order: all(holds(value, order) for holds in each)


def _compile_one(condition: Condition, keys: tuple[str | int, ...]) -> Holds:
    path = single_path(condition.path, (*keys, "path"))
    if condition.present is None and condition.equals is NO_VALUE and condition.differs is NO_VALUE:
        raise MappingError("a condition needs one of `present`, `equals` and `differs`", keys)
    read = excluding(compile_path(path), condition.none)
    present = condition.present
    equals = None if condition.equals is NO_VALUE else _as_list(condition.equals)
    differs = [] if condition.differs is NO_VALUE else _as_list(condition.differs)

    def holds(value: Any, order: Any) -> bool:
        found = read(value, order)
        if present is not None and (found is not None) is not present:
            return False
        return (equals is None or is_among(found, equals)) and not is_among(found, differs)

    return holds


def excluding(read: Read, none: list[Any]) -> Read:
    """Return the same closure, with some values counting as missing."""
    if not none:
        return read

    def read_unless_none(value: Any, order: Any) -> Any:
        found = read(value, order)
        return None if is_among(found, none) else found

    return read_unless_none


def is_among(value: Any, others: list[Any]) -> bool:
    """Return whether a value is one of others, where `true` differs from 1, and 1 from "1"."""
    is_bool = value.__class__ is bool
    return any(value == other and is_bool is (other.__class__ is bool) for other in others)


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]
