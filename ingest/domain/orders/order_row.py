"""Rows of the table of orders, with values in the form sent to PostgreSQL.

A row is built as soon as its order is decoded. The lines are encoded then, so that one text waits for the batch instead of an
object for each value.
"""

from datetime import datetime, timedelta
from typing import Self

import msgspec

from ingest.domain.orders.order_history import DeliveryNote
from ingest.domain.orders.plain_order import StorableOrder

# A time further ahead of the queue's clock does not count as the version, because later documents would count as older.
MOST_AHEAD = timedelta(days=1)


class OrderRow(msgspec.Struct, frozen=True, gc=False):
    """One row to store, made from an order and its delivery. The fields are in the order of the table's columns, and `note` is the last.

    Attributes:
        total: the exact sum of its lines in decimal notation.
        lines: a JSON array.
        fetched_at: when the document was requested or pushed. It replaces a missing version.
        attempts: attempts at the order until it was fetched.
        enqueued_at: Unix seconds.
        attributes: a JSON object, or None without attributes.
        document: the JSON document of the order, if it is to be kept.
        note: about the delivery, if the history of the order is kept.
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
    note: DeliveryNote | None = None

    @classmethod
    def of(
        cls,
        order: StorableOrder,
        fetched_at: datetime,
        attempts: int,
        enqueued_at: float,
        document: str | None = None,
        note: DeliveryNote | None = None,
    ) -> Self:
        """Return the row of an order. The rows of one document share its text."""
        return cls(
            order.id,
            order.status,
            order.currency,
            order.customer_id,
            order.country,
            order.placed_at,
            order.updated_at,
            str(order.total),  # as text, because asyncpg encodes a Decimal in Python
            order.lines_json().decode(),
            fetched_at,
            attempts,
            enqueued_at,
            order.attributes_json().decode() if order.attributes else None,
            document,
            note,
        )

    @property
    def is_ahead(self) -> bool:
        """Whether `updated_at` is too far ahead to be the version."""
        return self.updated_at is not None and self.updated_at - self.fetched_at > MOST_AHEAD

    @property
    def age(self) -> tuple[datetime, datetime]:
        """The sort key of rows of the same order. The greater is the newer."""
        version = self.fetched_at if self.updated_at is None or self.is_ahead else self.updated_at
        return version, self.fetched_at
