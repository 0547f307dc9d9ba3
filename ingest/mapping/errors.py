"""What can be wrong: with a mapping file, or with a document that it is applied to."""

from collections.abc import Sequence


class MappingError(ValueError):
    """A mapping that cannot be used.

    Attributes:
        keys: where in the file, from its top: names of keys, and indexes of lists.
        what: what is wrong there.
    """

    def __init__(self, what: str, keys: Sequence[str | int] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.keys = tuple(keys)

    def below(self, *keys: str | int) -> "MappingError":
        """The same error, seen from further up in the file."""
        return MappingError(self.what, (*keys, *self.keys))


class Mismatch(Exception):
    """A document that does not fit its mapping; never tells a value.

    Attributes:
        what: what is wrong.
        at: where in the document: a path below the value that was read from, or from the order if it begins with `$`; None where
            that is not known yet.
    """

    def __init__(self, what: str, at: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.at = at

    def below(self, prefix: str) -> "Mismatch":
        """The same mismatch, seen from further up in the document."""
        at = self.at or ""
        return self if at.startswith("$") else Mismatch(self.what, prefix + at)

    def located(self, at: str) -> "Mismatch":
        """The same mismatch, at a place if it has none."""
        return Mismatch(self.what, at) if self.at is None else self


_TYPE_NAMES = {
    "NoneType": "null",
    "bool": "bool",
    "int": "int",
    "Decimal": "float",
    "list": "array",
    "dict": "object",
}


def type_name(value: object) -> str:
    """The type of a value as msgspec names it in its errors, which our own documents' errors contain."""
    name = type(value).__name__
    return f"`{_TYPE_NAMES.get(name, name)}`"
