"""The rule of what a caller sees, for HTTP and the console alike.

Personal values are the customer and the attributes of orders, raw documents, fields that producers add to an entry, criteria by
customer or attribute, and the values of previews. Without the scope `personal`, only their beginning is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from ingest.domain.deliveries.entry_fields import DOCUMENT, KNOWN
from ingest.domain.orders.field_differences import ChangedField, ChangePreview, DifferenceExample

_SHOWN = 2
_KEPT_FIELDS = {name.decode() for name in KNOWN - {DOCUMENT}}


@dataclass(frozen=True, slots=True)
class Visibility:
    """What one caller sees.

    Attributes:
        personal: Whether personal values are shown.
        sources: The sources whose names are shown, or None for all.
    """

    personal: bool
    sources: frozenset[str] | None = None

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a stored order."""
        if self.personal:
            return order
        shown = order | {"customer_id": _masked(order["customer_id"])}
        if "attributes" in order:
            shown["attributes"] = _masked_values(msgspec.json.decode(order["attributes"]))
        return shown

    def row(self, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a stored order with its columns, or None if it is not stored."""
        return None if row is None else {**row, "order": self.order(row["order"])}

    def fields(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return the fields of an entry of a queue."""
        return {
            name: value if self.personal or name in _KEPT_FIELDS else _masked(value) for name, value in fields.items()
        }

    def selection(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the selection of a job or of an entry in the audit log."""
        shown = dict(selection)
        if self.sources is not None and isinstance(shown.get("sources"), list):
            shown["sources"] = [name for name in shown["sources"] if name in self.sources]
        if not self.personal:
            for name in shown.keys() & {"customer_id", "attributes"}:
                shown[name] = _masked_values(shown[name])
        return shown

    def preview(self, result: ChangePreview | None) -> ChangePreview | None:
        """Return the result of a preview, or None if there is none."""
        if result is None or self.personal:
            return result
        return replace(result, fields=self.differences(result.fields))

    def differences(self, fields: Sequence[ChangedField]) -> list[ChangedField]:
        """Return fields with examples of their values before and after a change."""
        if self.personal:
            return [*fields]
        return [replace(each, examples=[*map(_masked_example, each.examples)]) for each in fields]


EVERYTHING = Visibility(personal=True)
"""For commands, whose users read the database."""


def _masked(value: Any) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:_SHOWN] + "…"


def _masked_example(example: DifferenceExample) -> DifferenceExample:
    return replace(example, before=_masked(example.before), after=_masked(example.after))


def _masked_values(values: Any) -> Any:
    """Mask a value, or the values of names, which may be pairs."""
    if isinstance(values, Mapping):
        return {name: _masked(value) for name, value in values.items()}
    if isinstance(values, list):
        return [[name, _masked(value)] for name, value in values]
    return _masked(values)
