"""A delivery: one hand-over of a stream entry to a worker, with the outcome it ends in.

What is made for each order is a msgspec struct, at a tenth of what a frozen dataclass costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from ingest.domain.order import Order


class DeadReason(StrEnum):
    """Why an entry was buried."""

    INVALID_MESSAGE = "invalid_message"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    INVALID_ORDER = "invalid_order"
    UNSTORABLE = "unstorable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MAX_DELIVERIES = "max_deliveries"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One hand-over of a stream entry.

    Attributes:
        entry_id: the entry's ID in the stream, `milliseconds-sequence`.
        order_id: the announced order; None if the entry names none that is valid.
        enqueued_at: Unix seconds at which the order was first announced.
        attempt: which attempt at this order this is, from 1. Unlike `count`, it grows only when a
            try at the order has failed, and it outlives the entry.
        count: how often Redis has handed over this entry, this time included.
        document: the order itself, if it was pushed with the entry; else it has to be fetched.
        fields: the entry as it stands in the stream, unknown fields included.
    """

    entry_id: str
    order_id: str | None
    enqueued_at: float
    attempt: int
    count: int
    document: bytes | None
    fields: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the queue answers to a heartbeat.

    Attributes:
        now: the queue's clock, Unix seconds; it never goes back.
        is_first: whether there was none before, or a break since: others may have claimed what was held.
        leads: whether this consumer does the group's maintenance, as long as it is heard.
        consumers: how many consumers of the group have heartbeats.
    """

    now: float
    is_first: bool
    leads: bool
    consumers: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Deliveries that others have left.

    Attributes:
        released: what was released.
        dead: what consumers held whose heartbeat has ended.
    """

    released: list[Delivery]
    dead: list[Delivery]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one page of the sweep through the group's entries in flight has found.

    Attributes:
        is_complete: whether the sweep has reached its end; the next page begins a new one.
        released: entries that nobody had renewed in time.
        restored: entries that had left the pending list without an ack.
    """

    is_complete: bool
    released: int
    restored: int


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """An order's document, as the external API sent it.

    Attributes:
        body: what was sent.
        asked_at: when the request that it answers began. A document cannot be older than that, so of two that have
            no version of their own, the one asked for later is the newer; time spent on failed tries does not count.
    """

    body: bytes
    asked_at: datetime


class Store(msgspec.Struct, frozen=True, gc=False):
    """The order arrived and is sound: store it, then ack."""

    order: Order
    fetched_at: datetime


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The order could not be had now: schedule another delivery.

    Attributes:
        after: seconds from now.
        attempt: what the next delivery's `attempt` shall be.
        error: what went wrong, for people.
    """

    after: float
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class Bury:
    """No retry will help: move the entry to the dead letters."""

    reason: DeadReason
    error: str


Outcome = Store | RetryLater | Bury


class Effect(StrEnum):
    """What storing one order did to its row."""

    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    ERASED = "erased"


class OrderRow(msgspec.Struct, frozen=True, gc=False):
    """One row to store: an order, and what its delivery knows of it.

    Attributes:
        fetched_at: when the document was fetched; stands in for the version if the order has none.
        enqueued_at: Unix seconds.
    """

    order: Order
    fetched_at: datetime
    attempts: int
    enqueued_at: float
