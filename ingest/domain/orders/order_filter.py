"""A filter for stored orders, and the position of a page in their list.

HTTP and the console read here which criteria there are, and describe them with these words.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta

_Time = Annotated[datetime, Meta(tz=True)] | None


class OrderCriteria(msgspec.Struct, frozen=True, omit_defaults=True):
    """Criteria that stored orders must match. The console shows those with a title."""

    status: Annotated[str | None, Meta(title="Status", description="Only with this status.")] = None
    country: Annotated[str | None, Meta(description="Only with this country.")] = None
    currency: Annotated[str | None, Meta(description="Only with this currency.")] = None
    customer_id: Annotated[str | None, Meta(title="Customer", description="Only of this customer.")] = None
    prefix: Annotated[
        str | None, Meta(title="ID begins with", description="Only with an ID that begins with this text.")
    ] = None
    placed_from: Annotated[_Time, Meta(title="Placed from", description="Only placed at this time or later.")] = None
    placed_to: Annotated[_Time, Meta(title="Placed before", description="Only placed before this time.")] = None
    updated_from: Annotated[_Time, Meta(description="Only updated at this time or later, by the external API.")] = None
    stored_from: Annotated[
        _Time, Meta(title="Stored from", description="Only with a row that last changed at this time or later.")
    ] = None
    stored_to: Annotated[
        _Time, Meta(title="Stored before", description="Only with a row that last changed before this time.")
    ] = None


class OrderFilter(OrderCriteria, frozen=True, omit_defaults=True):
    """A filter for stored orders. An order must match all given values.

    Attributes:
        attributes: names and values of attributes. A number or a boolean is given as text.
        ids: only these orders. Empty for all.
    """

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
        """Return the given values for JSON."""
        # Lists instead of tuples, as in the database.
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])


def order_filter_of(recorded: Mapping[str, Any]) -> OrderFilter:
    """Return the filter that `OrderFilter.as_object` has recorded."""
    return msgspec.convert(recorded, OrderFilter)


class Criterion(NamedTuple):
    """A criterion of a filter, other than its attributes and IDs."""

    label: str | None
    description: str
    is_time: bool


def _criterion(kind: Any) -> Criterion:
    [values, meta] = get_args(kind)
    return Criterion(meta.title, meta.description, str not in get_args(values))


CRITERIA = {each.name: _criterion(each.type) for each in msgspec.structs.fields(OrderCriteria)}
"""All criteria by their names."""


class OrderPosition(NamedTuple):
    """The last order of a page, after which the next page begins.

    Attributes:
        order_id: its ID. Empty before the first order.
        stored_at: when its row last changed, in ISO 8601. None if only the ID is known, which is enough for a list in the order of IDs.
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
