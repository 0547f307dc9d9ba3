"""Criteria on the error and the fields of a dead letter or a retry."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.domain.deliveries.entry_fields import FORMER_ORIGIN, LISTED, ORIGIN
from ingest.domain.deliveries.error_shape import error_shape


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """All of these must match. Without criteria, every entry matches.

    Attributes:
        text: part of the order ID or of the error, in upper or lower case.
        shape: shape of the error, or any error with this shape.
        attributes: values of fields of the entry, such as `origin`, or of a field that its producer has added.
    """

    text: str = ""
    shape: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is a criterion."""
        return bool(self.text or self.shape or self.attributes)

    @property
    def unlisted_fields(self) -> frozenset[bytes]:
        """The fields that have to be read in addition to those that lists contain."""
        return frozenset(name.encode() for name in self.attributes) - LISTED

    def matches(
        self, order_id: str | None, error: str, fields: Mapping[bytes, bytes], worker: str | None = None
    ) -> bool:
        """Return whether an entry with these properties matches."""
        if self.shape and error_shape(error) != error_shape(self.shape):
            return False
        if self.text and self.text.casefold() not in f"{order_id or ''}\n{error}".casefold():
            return False
        return all(
            value == (worker if name == "worker" else _field(fields, name)) for name, value in self.attributes.items()
        )


def _field(fields: Mapping[bytes, bytes], name: str) -> str | None:
    raw = fields.get(name.encode())
    if raw is None and name.encode() == ORIGIN:
        raw = fields.get(FORMER_ORIGIN)
    return None if raw is None else raw.decode(errors="backslashreplace")
