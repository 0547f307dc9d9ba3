"""Order ingestion on Redis Streams: announce orders from Python.

`Client` and `SyncClient` call the HTTP API. `Producer` and `SyncProducer` write into the queue, with access to Redis. The first
of each is for asyncio, the second for everything else. `reconcile` and `replay` do what the commands of these names do.
What else is in this package is not public.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.client.client import Client
    from ingest.client.errors import (
        ApiError,
        ApiUnavailable,
        Forbidden,
        Invalid,
        NotFound,
        RateLimited,
        RequestInProgress,
        Unauthorized,
        UnexpectedAnswer,
    )
    from ingest.client.found_order import FoundOrder
    from ingest.client.sync_client import SyncClient
    from ingest.domain.deliveries.accepted import Accepted, Durability
    from ingest.domain.deliveries.announcement import Announcement, InvalidAnnouncement
    from ingest.domain.deliveries.dead_letter import Selection
    from ingest.domain.errors import QueueUnavailable
    from ingest.domain.orders.order import InvalidOrderId, Order, OrderLine
    from ingest.operations.backends import Backends
    from ingest.operations.dead_letters import replay
    from ingest.operations.reconcile import reconcile
    from ingest.queue.produce.producer import Producer
    from ingest.queue.produce.producer_errors import (
        BacklogFull,
        CannotConfirm,
        EnqueueTimeout,
        IdempotencyKeyReused,
        InvalidIdempotencyKey,
    )
    from ingest.queue.produce.sync_producer import SyncProducer
    from ingest.queue.redis.connection import QueueRefused
    from ingest.settings import load_settings

__all__ = [
    "Accepted",
    "Announcement",
    "ApiError",
    "ApiUnavailable",
    "Backends",
    "BacklogFull",
    "CannotConfirm",
    "Client",
    "Durability",
    "EnqueueTimeout",
    "Forbidden",
    "FoundOrder",
    "IdempotencyKeyReused",
    "Invalid",
    "InvalidAnnouncement",
    "InvalidIdempotencyKey",
    "InvalidOrderId",
    "NotFound",
    "Order",
    "OrderLine",
    "Producer",
    "QueueRefused",
    "QueueUnavailable",
    "RateLimited",
    "RequestInProgress",
    "Selection",
    "SyncClient",
    "SyncProducer",
    "Unauthorized",
    "UnexpectedAnswer",
    "load_settings",
    "reconcile",
    "replay",
]

# Imported when they are asked for: the commands start without what they do not use.
_MODULES = {
    "Accepted": "ingest.domain.deliveries.accepted",
    "Announcement": "ingest.domain.deliveries.announcement",
    "ApiError": "ingest.client.errors",
    "ApiUnavailable": "ingest.client.errors",
    "Backends": "ingest.operations.backends",
    "BacklogFull": "ingest.queue.produce.producer_errors",
    "CannotConfirm": "ingest.queue.produce.producer_errors",
    "Client": "ingest.client.client",
    "Durability": "ingest.domain.deliveries.accepted",
    "EnqueueTimeout": "ingest.queue.produce.producer_errors",
    "Forbidden": "ingest.client.errors",
    "FoundOrder": "ingest.client.found_order",
    "IdempotencyKeyReused": "ingest.queue.produce.producer_errors",
    "Invalid": "ingest.client.errors",
    "InvalidAnnouncement": "ingest.domain.deliveries.announcement",
    "InvalidIdempotencyKey": "ingest.queue.produce.producer_errors",
    "InvalidOrderId": "ingest.domain.orders.order",
    "NotFound": "ingest.client.errors",
    "Order": "ingest.domain.orders.order",
    "OrderLine": "ingest.domain.orders.order",
    "Producer": "ingest.queue.produce.producer",
    "QueueRefused": "ingest.queue.redis.connection",
    "QueueUnavailable": "ingest.domain.errors",
    "RateLimited": "ingest.client.errors",
    "RequestInProgress": "ingest.client.errors",
    "Selection": "ingest.domain.deliveries.dead_letter",
    "SyncClient": "ingest.client.sync_client",
    "SyncProducer": "ingest.queue.produce.sync_producer",
    "Unauthorized": "ingest.client.errors",
    "UnexpectedAnswer": "ingest.client.errors",
    "load_settings": "ingest.settings",
    "reconcile": "ingest.operations.reconcile",
    "replay": "ingest.operations.dead_letters",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
