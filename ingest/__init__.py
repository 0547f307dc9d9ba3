"""Order ingestion on Redis Streams: announce orders from Python.

`Producer` is for asyncio, `SyncProducer` for everything else; an order is announced by its ID or as an `Announcement`.
What else is in this package is not public.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.domain.accepted import Accepted, Durability
    from ingest.domain.announcement import Announcement, InvalidAnnouncement
    from ingest.domain.errors import QueueUnavailable
    from ingest.domain.order import InvalidOrderId, Order, OrderLine
    from ingest.queue.connection import QueueRefused
    from ingest.queue.producer import Producer
    from ingest.queue.producer_errors import (
        BacklogFull,
        CannotConfirm,
        EnqueueTimeout,
        IdempotencyKeyReused,
        InvalidIdempotencyKey,
    )
    from ingest.queue.sync_producer import SyncProducer

__all__ = [
    "Accepted",
    "Announcement",
    "BacklogFull",
    "CannotConfirm",
    "Durability",
    "EnqueueTimeout",
    "IdempotencyKeyReused",
    "InvalidAnnouncement",
    "InvalidIdempotencyKey",
    "InvalidOrderId",
    "Order",
    "OrderLine",
    "Producer",
    "QueueRefused",
    "QueueUnavailable",
    "SyncProducer",
]

# Imported when they are asked for: the commands start without what they do not use.
_MODULES = {
    "Accepted": "ingest.domain.accepted",
    "Announcement": "ingest.domain.announcement",
    "BacklogFull": "ingest.queue.producer_errors",
    "CannotConfirm": "ingest.queue.producer_errors",
    "Durability": "ingest.domain.accepted",
    "EnqueueTimeout": "ingest.queue.producer_errors",
    "IdempotencyKeyReused": "ingest.queue.producer_errors",
    "InvalidAnnouncement": "ingest.domain.announcement",
    "InvalidIdempotencyKey": "ingest.queue.producer_errors",
    "InvalidOrderId": "ingest.domain.order",
    "Order": "ingest.domain.order",
    "OrderLine": "ingest.domain.order",
    "Producer": "ingest.queue.producer",
    "QueueRefused": "ingest.queue.connection",
    "QueueUnavailable": "ingest.domain.errors",
    "SyncProducer": "ingest.queue.sync_producer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
