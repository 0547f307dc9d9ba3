"""The errors of mapping files, and of documents that do not fit them."""

from collections.abc import Sequence


class MappingError(ValueError):
    """A mapping that cannot be used.

    Attributes:
        keys: the location in the file, as names of keys and indexes of lists.
    """

    def __init__(self, problem: str, keys: Sequence[str | int] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys = tuple(keys)

    def below(self, *keys: str | int) -> "MappingError":
        """Return the same error with these keys before its own."""
        return MappingError(self.problem, (*keys, *self.keys))


class Mismatch(Exception):
    """A document that does not fit its mapping. It never contains a value.

    Attributes:
        at: the path in the document, relative to the value that was read, or to the order if it begins with `$`. None if the path
            is not known yet.
    """

    def __init__(self, problem: str, at: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at

    def below(self, prefix: str) -> "Mismatch":
        """Return the same mismatch with this prefix before its path."""
        at = self.at or ""
        return self if at.startswith("$") else Mismatch(self.problem, prefix + at)

    def with_path(self, at: str) -> "Mismatch":
        """Return the same mismatch, with this path unless it already contains one."""
        return Mismatch(self.problem, at) if self.at is None else self


_TYPE_NAMES = {"NoneType": "null", "Decimal": "float", "list": "array", "dict": "object"}


def type_name(value: object) -> str:
    """Return the name of a value's type, as in the errors of msgspec."""
    name = type(value).__name__
    return f"`{_TYPE_NAMES.get(name, name)}`"
