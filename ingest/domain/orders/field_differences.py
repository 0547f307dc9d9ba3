"""Finds the fields in which a stored order and a new form of it differ, for operators who preview a change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

# Of each field, and of the fields that are counted. A mapping may write each order's own attribute names.
EXAMPLES = 3
_MOST_FIELDS = 200
_LONGEST_VALUE = 200
_MISSING = object()


class FieldDifference(msgspec.Struct, frozen=True):
    """A field of one order, with its stored and its new value as text. None for a missing value.

    Attributes:
        name: such as `status`, `lines[].unit_price` or `attributes.channel`.
    """

    name: str
    before: str | None
    after: str | None


class DifferenceExample(msgspec.Struct, frozen=True):
    """One order with a difference in a field."""

    order_id: str
    before: str | None
    after: str | None


class ChangedField(msgspec.Struct, frozen=True):
    """A field in which orders would change."""

    field: str
    orders: Annotated[int, msgspec.Meta(ge=0)]
    examples: list[DifferenceExample]


class UnusableOrder(msgspec.Struct, frozen=True):
    """An order that cannot be fetched."""

    order_id: str
    error: str


class ChangePreview(msgspec.Struct, frozen=True):
    """The result of a preview that is done. It is deleted when one of its orders is erased."""

    count: Annotated[int | None, msgspec.Meta(description="Stored orders that match, if they can be counted in time.")]
    fetched: Annotated[int, msgspec.Meta(ge=0, description="Orders that were fetched.")]
    changed: Annotated[int, msgspec.Meta(ge=0, description="Orders of these that would change.")]
    fields: Annotated[list[ChangedField], msgspec.Meta(description="The fields that would change.")]
    failures: Annotated[list[UnusableOrder], msgspec.Meta(description="Orders that cannot be fetched.")]


@dataclass(slots=True)
class FieldSummary:
    """How many orders differ in each field.

    Attributes:
        orders: number of orders with a difference, by field.
        examples: some of them, by field.
    """

    orders: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[DifferenceExample]] = field(default_factory=dict)

    def add(self, order_id: str, differences: Sequence[FieldDifference]) -> None:
        """Count the differences of an order."""
        for each in differences:
            if each.name not in self.orders and len(self.orders) >= _MOST_FIELDS:
                continue
            self.orders[each.name] = self.orders.get(each.name, 0) + 1
            examples = self.examples.setdefault(each.name, [])
            if len(examples) < EXAMPLES:
                examples.append(DifferenceExample(order_id, each.before, each.after))

    def by_frequency(self) -> list[tuple[str, int]]:
        """The fields and their numbers of orders, the most frequent first."""
        return sorted(self.orders.items(), key=lambda item: (-item[1], item[0]))

    def changed(self) -> list[ChangedField]:
        """Return the fields with their numbers of orders and examples, the most frequent first."""
        return [ChangedField(name, orders, self.examples[name]) for name, orders in self.by_frequency()]


def field_differences(changed: Mapping[str, tuple[str | None, str | None]]) -> list[FieldDifference]:
    """Return the differences within columns that differ.

    Args:
        changed: the stored and the new value of each such column, as text. `lines` and `attributes` are JSON.
    """
    found: list[FieldDifference] = []
    for name, (before, after) in changed.items():
        match name:
            case "lines":
                found += _in_lines(before, after)
            case "attributes":
                found += _in_attributes(before, after)
            case _:
                found.append(FieldDifference(name, _short(before), _short(after)))
    return found


def _in_lines(before: str | None, after: str | None) -> Iterator[FieldDifference]:
    old, new = _decoded(before, []), _decoded(after, [])
    if len(old) != len(new):
        yield FieldDifference("lines", f"{len(old)} lines", f"{len(new)} lines")
        return
    seen: set[str] = set()
    for stored, made in zip(old, new, strict=True):
        for name in _different(stored, made):
            if name not in seen:
                seen.add(name)
                yield FieldDifference(f"lines[].{name}", _text(stored, name), _text(made, name))


def _in_attributes(before: str | None, after: str | None) -> Iterator[FieldDifference]:
    old, new = _decoded(before, {}), _decoded(after, {})
    for name in _different(old, new):
        yield FieldDifference(f"attributes.{name}", _text(old, name), _text(new, name))


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys((*old, *new))
    return [name for name in names if _encoded(old.get(name, _MISSING)) != _encoded(new.get(name, _MISSING))]


def _decoded(text: str | None, default: Any) -> Any:
    return default if text is None else msgspec.json.decode(text)


def _encoded(value: Any) -> bytes | None:
    # Python equates true and 1.
    return None if value is _MISSING else msgspec.json.encode(value, order="sorted")


def _text(values: Mapping[str, Any], name: str) -> str | None:
    if name not in values:
        return None
    value = values[name]
    return _short(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
