"""A filter for stored orders, and the position of a page in their list."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

_TIMES = {"placed_from", "placed_to", "updated_from", "stored_from", "stored_to"}


@dataclass(frozen=True, slots=True)
class OrderFilter:
    """A filter for stored orders. An order must match all given values.

    Attributes:
        placed_from: placed at this time or later.
        placed_to: placed before this time.
        updated_from: updated at this time or later, according to the external API.
        stored_from: the row last changed at this time or later.
        stored_to: the row last changed before this time.
        prefix: the ID begins with this text.
        attributes: names and values of attributes. A number or a boolean is given as text.
        ids: only these orders. Empty for all.
    """

    status: str | None = None
    country: str | None = None
    currency: str | None = None
    customer_id: str | None = None
    placed_from: datetime | None = None
    placed_to: datetime | None = None
    updated_from: datetime | None = None
    stored_from: datetime | None = None
    stored_to: datetime | None = None
    prefix: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    ids: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether it matches all orders."""
        return self == OrderFilter()

    @property
    def is_by_time(self) -> bool:
        """Whether the matching orders are listed in the order of their last change, and otherwise in the order of their IDs."""
        return self.stored_from is not None or self.stored_to is not None

    def as_object(self) -> dict[str, Any]:
        """Return the given values for JSON, with times in UTC."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _shown(value) for name, value in given.items() if value not in {None, ()}}


def order_filter_of(recorded: Mapping[str, Any]) -> OrderFilter:
    """Return the filter that `OrderFilter.as_object` has recorded."""
    values = {field.name: recorded[field.name] for field in fields(OrderFilter) if field.name in recorded}
    for name in values.keys() & _TIMES:
        values[name] = datetime.fromisoformat(values[name])
    if "attributes" in values:
        values["attributes"] = tuple((name, value) for name, value in values["attributes"])
    if "ids" in values:
        values["ids"] = tuple(values["ids"])
    return OrderFilter(**values)


def _shown(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case tuple():
            return [_shown(each) for each in value]
        case _:
            return value


class OrderPosition(NamedTuple):
    """The last order of a page, after which the next page begins.

    Attributes:
        order_id: its ID. Empty before the first order.
        stored_at: when its row last changed, in ISO 8601. Only if the list is in the order of these times.
    """

    order_id: str = ""
    stored_at: str | None = None


class OrderPlace(NamedTuple):
    """The last order of a page in a list of several sources that begins with the newest order.

    Attributes:
        ingested_at: when its row last changed.
    """

    ingested_at: datetime
    source: str
    order_id: str
