"""Notes about one document: amounts lost by rounding, and values that were left out."""

from typing import TYPE_CHECKING, Any

from ingest.mapping.compiled.paths import Read
from ingest.mapping.errors import Mismatch

if TYPE_CHECKING:
    from decimal import Decimal


class Notes:
    """Collected while a document is mapped.

    Attributes:
        remainders: the amounts that rounding the prices of lines has lost.
        unrounded: the amounts that the shop has lost by rounding lines.
        omitted: the field and the problem of each optional value that does not fit.
    """

    __slots__ = ("omitted", "remainders", "unrounded")

    def __init__(self) -> None:
        self.remainders: list[Decimal] = []
        self.unrounded: list[Decimal] = []
        self.omitted: list[tuple[str, Mismatch]] = []

    def optional(self, name: str, read: Read, value: Any, order: Any) -> Any:
        """Return an optional value, or None without one. A value that does not fit is noted."""
        try:
            return read(value, order)
        except Mismatch as mismatch:
            self.omitted.append((name, mismatch))
            return None
