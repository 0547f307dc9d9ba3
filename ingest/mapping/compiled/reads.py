"""The closures of single fields: find a value, convert it, or raise an error with its place in the document."""

from dataclasses import dataclass
from typing import Any

from ingest.mapping.compiled.conversions import Convert
from ingest.mapping.compiled.paths import Read
from ingest.mapping.compiled.pipelines import Contextual
from ingest.mapping.errors import Mismatch


@dataclass(frozen=True, slots=True)
class Without:
    """What becomes of a field without a value.

    Attributes:
        default: its value then; None for none.
        needed: the name of our field, if it needs a value.
        at: where the value should be, for errors.
    """

    default: Any
    needed: str
    at: str

    def value(self) -> Any:
        """The default, or None.

        Raises:
            Mismatch: our field needs a value.
        """
        if self.default is None and self.needed:
            raise Mismatch(f"no value for `{self.needed}`")
        return self.default


def read_any(read: Read, convert: Convert, without: Without) -> Read:
    """A field of any source."""
    at = without.at

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return convert(found) if found is not None else without.value()
        except Mismatch as mismatch:
            raise mismatch.located(at) from None

    return read_field


def read_in_context(read: Read, convert: Contextual, without: Without) -> Read:
    """A field whose conversion needs more than the value."""
    at, step = without.at, convert.convert

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return step(found, value, order) if found is not None else without.value()
        except Mismatch as mismatch:
            raise mismatch.located(at) from None

    return read_field


def read_each(read: Read, convert: Convert | Contextual, without: Without) -> Read:
    """A field whose path leads to a list of values."""
    at = without.at
    step = convert.convert if isinstance(convert, Contextual) else lambda value, _source, _order: convert(value)

    def read_field(value: Any, order: Any) -> Any:
        try:
            found = read(value, order)
            return without.value() if found is None else [step(element, value, order) for element in found]
        except Mismatch as mismatch:
            raise mismatch.located(at) from None

    return read_field
