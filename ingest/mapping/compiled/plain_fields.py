"""Generates the code that reads the plain fields of an object without a call for each.

A plain field is a path of keys, converted to its type without options, as most are. Whatever its value is not as expected (nothing, a
number in the place of a text) is left to the field's own closure. The generated code contains no text of a mapping: keys,
conversions and closures are its names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from ingest.mapping.compiled.conversions import JSON_SAFE, to_decimal
from ingest.mapping.compiled.declaration import NO_VALUE, Declared, Field, Type
from ingest.mapping.compiled.paths import Read, keys_alone, parse_path

# What makes the value of its path the field's; `r` is its closure, `e` the object and `o` the order that it is in.
_CONVERSIONS: dict[Type, str] = {
    "text": "if v.__class__ is not str: v = str(v) if v.__class__ is int else r(e, o)",
    "decimal": "v = decimal(v) if v.__class__ is str else v if v.__class__ is Decimal else r(e, o)",
    "quantity": f"if v.__class__ is not int or not -{JSON_SAFE} <= v <= {JSON_SAFE}: v = r(e, o)",
    "timestamp": "v = timestamp(v) if v.__class__ is str else None; v = r(e, o) if v is None or v.tzinfo is None else v",
    "json": "if v.__class__ is not str: v = r(e, o)",
}
_NAME = re.compile(r"\b[vr]\b")
_NAMES = {"Decimal": Decimal, "decimal": to_decimal, "timestamp": datetime.fromisoformat}


@dataclass(frozen=True, slots=True)
class FieldCode:
    """A field, to be read together with others.

    Attributes:
        read: its closure.
        keys: of its path, if it is plain; else none.
        kind: what a plain one is converted to.
    """

    read: Read
    keys: tuple[str, ...] = ()
    kind: Type = "text"

    @classmethod
    def of(cls, declared: Declared, kind: Type, read: Read) -> "FieldCode":
        """What a field that `compile_field` has compiled to `read` is, if it says no type, by its type."""
        field = Field(path=declared) if isinstance(declared, str) else declared
        kind = field.type or kind
        plain = msgspec.structs.replace(field, type=None, default=NO_VALUE) == Field(path=field.path)
        if field.path is None or not plain or kind not in _CONVERSIONS:
            return cls(read)
        return cls(read, keys_alone(parse_path(field.path)), kind)


def read_together(fields: Sequence[FieldCode], build: Callable[..., Any]) -> Read:
    """What reads all fields of an object and passes their values to `build`, in their order.

    Errors of conversions may come without their place, or as a `ValueError`: then the closures say what is wrong, and where.
    """
    result = ", ".join(f"v{index}" for index in range(len(fields)))
    return _generated(fields, [f"return build({result})"], {"build": build})


def read_named(fields: Mapping[str, FieldCode]) -> Read:
    """What reads all fields of an object that have a value, to a dictionary; with errors as `read_together`."""
    results = [f"if v{index} is not None: found[n{index}] = v{index}" for index in range(len(fields))]
    names = {f"n{index}": name for index, name in enumerate(fields)}
    return _generated(list(fields.values()), ["found = {}", *results, "return found"], names)


def _generated(fields: Sequence[FieldCode], last: list[str], names: dict[str, Any]) -> Read:
    names |= _NAMES
    plain = [line for index, field in enumerate(fields) for line in _plain(str(index), field, names)]
    closures = [f"v{index} = r{index}(e, o)" for index in range(len(fields))]
    lines = ["def read(e, o):", " if e.__class__ is dict:", *(f"  {line}" for line in plain or ["pass"]), " else:"]
    lines += [*(f"  {line}" for line in closures or ["pass"]), *(f" {line}" for line in last)]
    # All that it is made of is in this module.
    exec("\n".join(lines), names)  # noqa: S102
    read: Read = names["read"]
    return read


def _plain(index: str, field: FieldCode, names: dict[str, Any]) -> list[str]:
    names[f"r{index}"] = field.read
    if not field.keys:
        return [f"v{index} = r{index}(e, o)"]
    keys = [f"k{index}_{at}" for at in range(len(field.keys))]
    names |= zip(keys, field.keys, strict=True)
    inner = [f"v{index} = v{index}.get({key}) if v{index}.__class__ is dict else None" for key in keys[1:]]
    conversion = _NAME.sub(lambda name: f"{name[0]}{index}", _CONVERSIONS[field.kind])
    return [f"v{index} = e.get({keys[0]})", *inner, conversion]
