"""Loads ready-made mappings by name, and others from a file. Each error names the line and the field."""

import tomllib
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ingest.domain.errors import ConfigError
from ingest.domain.toml_errors import Keys, describe_error, describe_location
from ingest.files.regular import open_regular
from ingest.mapping.compiled.declaration import (
    Condition,
    Declared,
    Field,
    LineFields,
    MappingFile,
    OrderFields,
    PartDeclaration,
)
from ingest.mapping.compiled.mapping import CompiledMapping
from ingest.mapping.errors import MappingError

_READY_MADE = files("ingest.mapping") / "ready_made"
_SUFFIX = ".toml"
# Earlier names of mappings.
_RENAMED = {"shopify": "shopify-rest"}
# A larger file is not a mapping, and must not fill the memory.
_LARGEST = 1024 * 1024


def ready_made_names() -> list[str]:
    """Return the names of the mappings included in the service."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _READY_MADE.iterdir() if entry.name.endswith(_SUFFIX))


def load_mapping(name: str) -> CompiledMapping:
    """Load a ready-made mapping by its name, or a mapping from a file.

    Raises:
        ConfigError: it cannot be read or used. The message is one line with the setting, the line and the field.
    """
    text, shown = _text_of(name)
    try:
        return compile_mapping(text)
    except MappingError as error:
        where = ", ".join([shown, *describe_location(error.keys, text)])
        raise ConfigError(f"INGEST_MAPPING: {where}: {error.problem}") from None


def compile_mapping(text: str) -> CompiledMapping:
    """Compile the text of a mapping file.

    Raises:
        MappingError: it cannot be used.
    """
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, DecimalException, RecursionError) as error:  # ValueError also for thousands of digits
        raise MappingError(f"not TOML: {error}") from None
    try:
        _reject_unstorable(data, ())
    except RecursionError:
        raise MappingError("nested too deeply") from None
    for table, kind in (("attributes", Declared), ("parts", PartDeclaration)):
        # One by one, because msgspec's errors omit the keys of dictionaries.
        entries = data.get(table)
        for name, value in entries.items() if isinstance(entries, dict) else ():
            _convert(value, kind, (table, name))
    return CompiledMapping(_convert(data, MappingFile, ()))


def _convert(value: Any, kind: Any, keys: Keys) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise MappingError(*describe_error(str(error), keys, _known_keys)) from None


def _text_of(name: str) -> tuple[str, str]:
    if "/" not in name and not name.endswith(_SUFFIX):
        name = _RENAMED.get(name, name)
        if name not in ready_made_names():
            known = ", ".join(ready_made_names())
            raise ConfigError(f"INGEST_MAPPING: unknown mapping {name!r}: write one of {known}, or the path of a file")
        return (_READY_MADE / f"{name}{_SUFFIX}").read_text(encoding="utf-8"), name
    try:
        with open_regular(Path(name)) as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"INGEST_MAPPING: cannot read {name}: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise ConfigError(f"INGEST_MAPPING: {name} is not a mapping, because it is larger than {_LARGEST} bytes")
    try:
        return content.decode(), name
    except UnicodeDecodeError as error:
        raise ConfigError(f"INGEST_MAPPING: {name} is not UTF-8 text") from error


def _reject_unstorable(value: Any, keys: Keys) -> None:
    """Reject texts that PostgreSQL cannot store, and TOML's `inf` and `nan`. Decoding checks the values of documents."""
    if isinstance(value, Decimal) and not value.is_finite():
        raise MappingError("a number that is not finite", keys)
    if isinstance(value, str) and ("\0" in value or "\\u0000" in value):
        raise MappingError("a text contains a NUL character", keys)
    if isinstance(value, dict):
        for key, inner in value.items():
            _reject_unstorable(key, keys)
            _reject_unstorable(inner, (*keys, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _reject_unstorable(inner, (*keys, index))


def _known_keys(keys: Keys) -> Sequence[str]:
    """Return the keys that the table at a location supports."""
    match keys:
        case ():
            struct: type[msgspec.Struct] = MappingFile
        case ("order",):
            struct = OrderFields
        case ("lines", _):
            struct = LineFields
        case ("parts", _):
            struct = PartDeclaration
        case _:
            struct = Condition if {"when", "where"} & set(keys) else Field
    return struct.__struct_encode_fields__
