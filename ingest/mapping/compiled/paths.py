"""Compiles paths of keys, indexes, and `[]` for each element of a list, such as `customer.addresses[0].country`.

Paths do not support wildcards or expressions, so that their cost is known. If a step is missing or null, the path yields
no value. An empty list in place of an object, as PHP encodes it, also yields no value. An object in place of a list yields its
values if its keys are integers, because PHP encodes a list with gaps in this way.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingest.mapping.errors import MappingError, Mismatch, type_name

Read = Callable[[Any, Any], Any]
"""Takes a value (an order, or one of its lines) and the whole order. Returns the value found, or None."""


EACH = -1
"""The step `[]`."""

_STEP = re.compile(r'\.?(?P<key>[A-Za-z_][A-Za-z0-9_-]*)|\.?"(?P<quoted>[^"]+)"|\[(?P<index>[0-9]{0,9})\]')


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path.

    Attributes:
        steps: keys, indexes and `EACH`.
        is_absolute: whether it begins at the order (`$.`) even in a line.
    """

    steps: tuple[str | int, ...]
    is_absolute: bool

    @property
    def is_list(self) -> bool:
        """Whether it leads to a list of values."""
        return EACH in self.steps


def text_of(steps: tuple[str | int, ...]) -> str:
    """Return steps as text, such as `.lines[0].price`."""
    return "".join(f".{step}" if isinstance(step, str) else "[]" if step == EACH else f"[{step}]" for step in steps)


def parse_path(text: str) -> Path:
    """Parse a path."""
    is_absolute = text == "$" or text.startswith(("$.", "$["))
    rest = text[1:] if is_absolute else text
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        step = _STEP.match(rest, position)
        if step is None or (step[0].startswith(".") != bool(position or is_absolute) and not step[0].startswith("[")):
            raise MappingError(f"{text!r} is not a path: write keys, indexes and [], such as a.b[0].c or items[].price")
        key = step["key"] or step["quoted"]
        steps.append(key if key is not None else int(step["index"]) if step["index"] else EACH)
        position = step.end()
    if not steps and not is_absolute:
        raise MappingError("an empty path: write keys, indexes and [], such as a.b[0].c")
    return Path(tuple(steps), is_absolute)


def single_path(text: str, keys: tuple[str | int, ...]) -> Path:
    """Parse the path at `keys` in the file, which must lead to a single value."""
    path = checked_path(text, keys)
    if path.is_list:
        raise MappingError("a path with [] leads to a list of values, but a single value is required", keys)
    return path


def checked_path(text: str, keys: tuple[str | int, ...]) -> Path:
    """Parse the path at `keys` in the file."""
    try:
        return parse_path(text)
    except MappingError as error:
        raise error.below(*keys) from None


def place_of(path: str | None) -> str:
    """Return the location of a path for errors, relative to the object that it is applied to."""
    if not path or path.startswith(("$", "[")):
        return path or ""
    return f".{path}"


def compile_path(path: Path) -> Read:
    """Compile a path."""
    steps = path.steps
    if path.is_absolute:
        return lambda _, order: _walk_order(order, steps)
    if len(steps) != 1 or not isinstance(steps[0], str):
        return lambda value, _: walk(value, steps)
    # The usual path, without the cost of `walk`.
    key = steps[0]
    return lambda value, _: value.get(key) if value.__class__ is dict else walk(value, steps)


def _walk_order(order: Any, steps: tuple[str | int, ...]) -> Any:
    try:
        return walk(order, steps)
    except Mismatch as mismatch:
        raise mismatch.below("$") from None


def walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    """Follow a path step by step.

    Raises:
        Mismatch: a value on the path has another type than the path expects.
    """
    for position, step in enumerate(steps):
        if value is None:
            return None
        if isinstance(step, str):
            if value == []:
                return None
            if not isinstance(value, dict):
                raise Mismatch(f"expected `object`, got {type_name(value)}", text_of(steps[:position]))
            value = value.get(step)
            continue
        elements = value if value.__class__ is list else list_in(value)
        if elements is None:
            raise Mismatch(f"expected `array`, got {type_name(value)}", text_of(steps[:position]))
        if step == EACH:
            return _each(elements, steps[:position], steps[position + 1 :])
        value = elements[step] if step < len(elements) else None
    return value


def list_in(value: Any) -> list[Any] | None:
    """Return a list, or the values of an object whose keys are integers. Return None for any other value."""
    if isinstance(value, list):
        return value
    is_list = isinstance(value, dict) and value and all(key.isdecimal() and key.isascii() for key in value)
    return list(value.values()) if is_list else None


def _each(elements: list[Any], before: tuple[str | int, ...], rest: tuple[str | int, ...]) -> list[Any]:
    found: list[Any] = []
    for index, element in enumerate(elements):
        try:
            inner = walk(element, rest)
        except Mismatch as mismatch:
            raise mismatch.below(f"{text_of(before)}[{index}]") from None
        if inner is None:
            continue
        if EACH in rest:
            found += inner
        else:
            found.append(inner)
    return found
