"""Says where in a TOML file a mistake is, and what msgspec has found there."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from ingest.domain.toml_lines import Keys, lines_of

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def explained(message: str, above: Keys, known_keys: Callable[[Keys], Sequence[str]]) -> tuple[str, Keys]:
    """What is wrong, and where, by a message of msgspec's such as "Expected `str`, got `int` - at `$.order.id.path`".

    Args:
        message: of the `ValidationError`.
        above: where in the file the value is that was converted.
        known_keys: the keys that the table at a place may have.
    """
    what, _, path = message.rpartition(" - at `$")
    keys = (*above, *(name or int(index) for name, index in _STEP.findall(path))) if what else above
    what = what or message
    if unknown := _UNKNOWN_KEY.fullmatch(what):
        near = get_close_matches(unknown[1], known_keys(keys), n=1)
        suggestion = f"; did you mean `{near[0]}`?" if near else ""
        return f"unknown key `{unknown[1]}`{suggestion}", (*keys, unknown[1])
    return what.replace("Object missing required field", "needs the key"), keys


def located(keys: Keys, text: str) -> list[str]:
    """Where a key of a file is, for people: its line, and itself; nothing for the file as a whole."""
    if not keys:
        return []
    line = _line_of(keys, lines_of(text))
    return [*([f"line {line}"] if line else []), dotted(keys)]


def dotted(keys: Sequence[str | int]) -> str:
    """Keys of a file for people, such as `lines[0].sku`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _line_of(keys: Keys, lines: dict[Keys, int]) -> int | None:
    """The line of a key, or of the nearest table above it."""
    for length in range(len(keys), 0, -1):
        if keys[:length] in lines:
            return lines[keys[:length]]
    return None
