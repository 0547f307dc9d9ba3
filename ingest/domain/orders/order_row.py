"""One row of the table of orders, with its values as they are sent: made of an order as soon as that is decoded.

The lines of an order are encoded while they are at hand, and are then dropped: what waits for its batch is one text instead of
an object for each value.
"""

from datetime import datetime, timedelta
from typing import Self

import msgspec

from ingest.domain.orders.plain_order import StorableOrder

# A time that is further ahead of the queue's clock is no version: every later one would count as older.
MOST_AHEAD = timedelta(days=1)


class OrderRow(msgspec.Struct, frozen=True, gc=False):
    """One row to store: an order, and what its delivery knows of it. The fields are in the order of the table's columns.

    Attributes:
        total: the exact sum of its lines, as a decimal number.
        lines: a JSON array.
        fetched_at: when the document was requested, or pushed; stands in for the version if the order has none.
        attempts: at the order, until it was fetched.
        enqueued_at: Unix seconds.
        attributes: a JSON object; None if there are none.
        document: what the order was decoded from, if it is to be kept; JSON.
    """

    order_id: str
    status: str
    currency: str
    customer_id: str | None
    country: str | None
    placed_at: datetime
    updated_at: datetime | None
    total: str
    lines: str
    fetched_at: datetime
    attempts: int
    enqueued_at: float
    attributes: str | None
    document: str | None

    @classmethod
    def of(
        cls,
        order: StorableOrder,
        fetched_at: datetime,
        attempts: int,
        enqueued_at: float,
        document: str | None = None,
    ) -> Self:
        """Return the row of an order; the rows of one document share its text."""
        return cls(
            order.id,
            order.status,
            order.currency,
            order.customer_id,
            order.country,
            order.placed_at,
            order.updated_at,
            str(order.total),  # as text: asyncpg takes a Decimal apart in Python
            order.lines_json().decode(),
            fetched_at,
            attempts,
            enqueued_at,
            order.attributes_json().decode() if order.attributes else None,
            document,
        )

    @property
    def is_ahead(self) -> bool:
        """Whether the order's own time is too far ahead to be its version."""
        return self.updated_at is not None and self.updated_at - self.fetched_at > MOST_AHEAD

    @property
    def age(self) -> tuple[datetime, datetime]:
        """What orders the rows of one key: the greater is the newer."""
        version = self.fetched_at if self.updated_at is None or self.is_ahead else self.updated_at
        return version, self.fetched_at
