"""Describes an error that msgspec found in a TOML file, and its location."""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

Keys = tuple[str | int, ...]


class TableProblem(ValueError):
    """A table of a file that cannot be used.

    Attributes:
        problem: the error, never a secret.
        keys: the location in the table.
    """

    def __init__(self, problem: str, keys: Keys = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys = keys


# End the lists and inline tables that may be open at the end of a line.
_CLOSINGS = ("", "]", "]}", "]}]", "]}]}")
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
    line = line_of(keys, text)
    return [*([f"line {line}"] if line else []), dotted(keys)]


def dotted(keys: Sequence[str | int]) -> str:
    """Return the keys as one text, such as `lines[0].sku`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def line_of(keys: Keys, text: str) -> int | None:
    """Return the line (from 1) of a key in a valid file, or of the nearest key above it.

    The standard library's parser does not report lines, so this searches for the first line up to which the file contains the key.
    """
    lines = text.split("\n")
    depth = _depth(keys, tomllib.loads(text))

    def contains_key(index: int) -> bool:
        # A value of several lines can only be parsed as a whole.
        while (parsed := _parsed("\n".join(lines[: index + 1]))) is None:
            index += 1
        return _depth(keys, parsed) >= depth

    return bisect_left(range(len(lines)), True, key=contains_key) + 1 if depth else None


def _parsed(beginning: str) -> Any:
    for closing in _CLOSINGS:
        try:
            return tomllib.loads(f"{beginning}\n{closing}")
        except tomllib.TOMLDecodeError:
            continue
    return None


def _depth(keys: Keys, data: Any) -> int:
    """Return how many of the keys, from the top, lead to a value."""
    for depth, key in enumerate(keys):
        try:
            data = data[key]
        except (LookupError, TypeError):
            return depth
    return len(keys)
