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
        at: where in the document: a path below the value that was read from, or from the top if it begins with `$`.
    """

    def __init__(self, what: str, at: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.at = at

    def below(self, prefix: str) -> "Mismatch":
        """The same mismatch, seen from further up in the document."""
        return self if self.at.startswith("$") else Mismatch(self.what, prefix + self.at)


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
