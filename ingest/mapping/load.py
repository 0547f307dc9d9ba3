"""Loads mappings: those that come with the service by name, others from a file; each error names line and field."""

import re
import tomllib
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ingest.domain.errors import ConfigError
from ingest.mapping.compiled import CompiledMapping
from ingest.mapping.declaration import Condition, Declared, Field, LineFields, MappingFile, OrderFields, Part
from ingest.mapping.errors import MappingError, dotted
from ingest.mapping.toml_lines import Keys, lines_of

_READY_MADE = files("ingest.mapping") / "ready_made"
_SUFFIX = ".toml"
# A file larger than this is not a mapping; a mistake such as /dev/zero must not fill the memory.
_LARGEST = 1024 * 1024
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def ready_made_names() -> list[str]:
    """The mappings that come with the service."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _READY_MADE.iterdir() if entry.name.endswith(_SUFFIX))


def load_mapping(name: str) -> CompiledMapping:
    """The mapping with a name that comes with the service, or in a file.

    Raises:
        ConfigError: it cannot be read or used; one line that names the setting, the line and the field.
    """
    text, shown = _text_of(name)
    try:
        return compile_mapping(text)
    except MappingError as error:
        line = _line_of(error.keys, lines_of(text)) if error.keys else None
        where = [shown, *([f"line {line}"] if line else []), *([dotted(error.keys)] if error.keys else [])]
        raise ConfigError(f"INGEST_MAPPING: {', '.join(where)}: {error.what}") from None


def compile_mapping(text: str) -> CompiledMapping:
    """Compile the text of a mapping file.

    Raises:
        MappingError: it cannot be used.
    """
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, DecimalException, RecursionError) as error:
        raise MappingError(f"not TOML: {error}") from None
    _refuse_nul(data, ())
    for table, kind in (("attributes", Declared), ("parts", Part)):
        # One by one: msgspec's errors leave out the keys of dictionaries.
        entries = data.get(table)
        for name, value in entries.items() if isinstance(entries, dict) else ():
            _convert(value, kind, (table, name))
    return CompiledMapping(_convert(data, MappingFile, ()))


def _convert(value: Any, kind: Any, keys: Keys) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), keys) from None


def _text_of(name: str) -> tuple[str, str]:
    if "/" not in name and not name.endswith(_SUFFIX):
        if name not in ready_made_names():
            known = ", ".join(ready_made_names())
            raise ConfigError(
                f"INGEST_MAPPING: no mapping is called {name!r}: write one of {known}, or the path of a file"
            )
        return (_READY_MADE / f"{name}{_SUFFIX}").read_text(encoding="utf-8"), name
    try:
        with Path(name).open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"INGEST_MAPPING: cannot read {name}: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise ConfigError(f"INGEST_MAPPING: {name} is larger than {_LARGEST} bytes: it is not a mapping")
    try:
        return content.decode(), name
    except UnicodeDecodeError as error:
        raise ConfigError(f"INGEST_MAPPING: {name} is not UTF-8 text") from error


def _refuse_nul(value: Any, keys: Keys) -> None:
    """Refuse texts that no column can store; a document's own are checked where it is decoded."""
    if isinstance(value, str) and ("\0" in value or "\\u0000" in value):
        raise MappingError("a text contains a NUL character", keys)
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_nul(key, keys)
            _refuse_nul(inner, (*keys, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_nul(inner, (*keys, index))


def _explained(message: str, above: Keys) -> MappingError:
    """The error for a message of msgspec's, such as "Expected `str`, got `int` - at `$.order.id.path`"."""
    what, _, path = message.rpartition(" - at `$")
    keys = (*above, *(name or int(index) for name, index in _STEP.findall(path))) if what else above
    what = what or message
    if unknown := _UNKNOWN_KEY.fullmatch(what):
        near = get_close_matches(unknown[1], _known_keys(keys), n=1)
        suggestion = f"; did you mean `{near[0]}`?" if near else ""
        return MappingError(f"unknown key `{unknown[1]}`{suggestion}", (*keys, unknown[1]))
    return MappingError(what.replace("Object missing required field", "needs the key"), keys)


def _known_keys(keys: Keys) -> Sequence[str]:
    """The keys of the table at a place."""
    match keys:
        case ():
            struct: type[msgspec.Struct] = MappingFile
        case ("order",):
            struct = OrderFields
        case ("lines", _):
            struct = LineFields
        case ("parts", _):
            struct = Part
        case _:
            struct = Condition if {"when", "where"} & set(keys) else Field
    return struct.__struct_encode_fields__


def _line_of(keys: Keys, lines: dict[Keys, int]) -> int | None:
    """The line of a key, or of the nearest table above it."""
    for length in range(len(keys), 0, -1):
        if keys[:length] in lines:
            return lines[keys[:length]]
    return None
