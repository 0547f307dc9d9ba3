"""Describes an error that msgspec found in a TOML file, and its location."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from ingest.domain.toml_lines import Keys, lines_of

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def describe_error(message: str, above: Keys, known_keys: Callable[[Keys], Sequence[str]]) -> tuple[str, Keys]:
    """Return the problem and its keys, from a message such as "Expected `str`, got `int` - at `$.order.id.path`".

    Args:
        message: of the `ValidationError`.
        above: the keys of the converted value in the file.
        known_keys: returns the keys that a table supports.
    """
    problem, _, path = message.rpartition(" - at `$")
    keys = (*above, *(name or int(index) for name, index in _STEP.findall(path))) if problem else above
    problem = problem or message
    if unknown := _UNKNOWN_KEY.fullmatch(problem):
        near = get_close_matches(unknown[1], known_keys(keys), n=1)
        suggestion = f"; did you mean `{near[0]}`?" if near else ""
        return f"unknown key `{unknown[1]}`{suggestion}", (*keys, unknown[1])
    return problem.replace("Object missing required field", "needs the key"), keys


def describe_location(keys: Keys, text: str) -> list[str]:
    """Return the line of a key and the key itself as texts, or an empty list for the whole file."""
    if not keys:
        return []
    line = _line_of(keys, lines_of(text))
    return [*([f"line {line}"] if line else []), dotted(keys)]


def dotted(keys: Sequence[str | int]) -> str:
    """Return the keys as one text, such as `lines[0].sku`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _line_of(keys: Keys, lines: dict[Keys, int]) -> int | None:
    """Return the line of a key, or of the nearest table above it."""
    for length in range(len(keys), 0, -1):
        if keys[:length] in lines:
            return lines[keys[:length]]
    return None
