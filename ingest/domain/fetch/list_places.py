"""Positions in a shop's list: times on which elements agree, orders that a reading has seen, and texts that can be stored. Pure."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ingest.domain.fetch.list_gaps import ListGaps
from ingest.domain.fetch.listed import ListedOrder

# Orders of a reading that are remembered, of about 100 bytes each.
_REMEMBERED = 100_000
# A time counts if this number of elements agrees on it, or 10 % of a page.
_FEWEST, _SHARE = 2, 10


def agreed_time(orders: Sequence[ListedOrder], latest: datetime) -> datetime | None:
    """Return a time up to which a page of a sorted list is complete, or None if its elements do not agree on one.

    An order that has just changed may be at its old place with its new time. Its time is then later than the time of an element behind
    it, or it is one of the last elements. The last 10 % of the page, or the last two elements, are therefore left out.

    Args:
        orders: of the page, in its order.
        latest: later times prove nothing, because their places may not be final.
    """
    agreed: list[datetime] = []
    for order in reversed(orders):
        at = order.updated_at
        if at is not None and (not agreed or at <= agreed[-1]):
            agreed.append(at)
    agreed = [at for at in agreed if at <= latest]
    needed = max(_FEWEST, len(orders) // _SHARE)
    return agreed[needed - 1] if len(agreed) >= needed else None


def times_from(first: datetime, orders: Sequence[ListedOrder]) -> dict[str, datetime]:
    """Return the times of orders that are not before a time, by ID."""
    return {order.order_id: at for order in orders if (at := order.updated_at) is not None and at >= first}


class SeenOrders:
    """Orders that were seen with the same time. Of a long list, the last 100,000 to 200,000 are remembered."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._before: set[int] = set()

    def __contains__(self, order: ListedOrder) -> bool:
        """Whether an order was seen."""
        key = hash((order.order_id, order.updated_at))
        return key in self._recent or key in self._before

    def new(self, orders: Sequence[ListedOrder]) -> list[ListedOrder]:
        """Return the orders that were not seen before, and remember them."""
        found = []
        for order in orders:
            if order not in self:
                found.append(order)
            self._recent.add(hash((order.order_id, order.updated_at)))
        if len(self._recent) > _REMEMBERED:
            self._before, self._recent = self._recent, set()
        return found


class ListPlace(msgspec.Struct, frozen=True, omit_defaults=True, tag="list_place", forbid_unknown_fields=True):
    """A place in a list, at which another process can continue.

    The cursor of the shop is a value in this text, so that it is not mistaken for a part of it.

    Attributes:
        since: start of the period of the next request.
        cursor: of the shop.
        number: of the page or of its first element.
        begins_at: if the next request begins there instead, without a cursor or a number. Otherwise, None.
        known: the times of orders by ID, with one of which the response must begin then.
        gaps: of the pages before.
    """

    since: datetime
    cursor: str | None = None
    number: int = 0
    begins_at: datetime | None = None
    known: dict[str, datetime] = msgspec.field(default_factory=dict)
    gaps: ListGaps = msgspec.field(default_factory=ListGaps)

    def as_text(self) -> str:
        """Return the place as a text that can be stored."""
        return msgspec.json.encode(self).decode()


def place_of(text: str | None) -> ListPlace | None:
    """Return the place in a text, or None if it is none, such as a cursor of an earlier release."""
    try:
        return None if text is None else msgspec.json.decode(text, type=ListPlace)
    except msgspec.DecodeError:
        return None
