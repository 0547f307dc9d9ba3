"""The closures of single fields, which find and convert a value, or raise an error with its location."""

from dataclasses import dataclass
from typing import Any

from ingest.mapping.compiled.conversions import Convert
from ingest.mapping.compiled.paths import Read
from ingest.mapping.compiled.pipelines import Contextual
from ingest.mapping.errors import Mismatch


@dataclass(frozen=True, slots=True)
class MissingValue:
    """The replacement for a missing value of a field.

    Attributes:
        default: the default value, or None.
        needed: the name of the order's field, if it requires a value.
        at: the expected location of the value, for errors.
    """

    default: Any
    needed: str
    at: str

    def value(self) -> Any:
        """Return the default, or None.

        Raises:
            Mismatch: the field requires a value.
        """
        if self.default is None and self.needed:
            raise Mismatch(f"no value for `{self.needed}`")
        return self.default


def read_any(read: Read, convert: Convert, missing: MissingValue) -> Read:
    """Return the closure of a field with any source."""
    at = missing.at

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return convert(found) if found is not None else missing.value()
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None

    return read_field


def read_in_context(read: Read, convert: Contextual, missing: MissingValue) -> Read:
    """Return the closure of a field whose conversion needs more than the value."""
    at, step = missing.at, convert.convert

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return step(found, value, order) if found is not None else missing.value()
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None

    return read_field


def read_each(read: Read, convert: Convert | Contextual, missing: MissingValue) -> Read:
    """Return the closure of a field whose path leads to a list of values."""
    at = missing.at
    step = convert.convert if isinstance(convert, Contextual) else lambda value, _source, _order: convert(value)

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return missing.value() if found is None else [step(element, value, order) for element in found]
        except Mismatch as mismatch:
            raise mismatch.with_path(at) from None

    return read_field
