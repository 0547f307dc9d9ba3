"""The public Python API of order-ingest.

`Producer` and `SyncProducer` enqueue orders into Redis. `Client` and `SyncClient` call the HTTP API. The first class of each pair
is for asyncio, and the second for other programs. `reconcile` and `replay` do the same as the commands `ingest reconcile` and
`ingest dead replay`. All other modules of this package are private.
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
        UnexpectedResponse,
    )
    from ingest.client.responses import FoundOrder
    from ingest.client.sync_client import SyncClient
    from ingest.domain.deliveries.accepted import Accepted, Durability
    from ingest.domain.deliveries.announcement import Announcement, InvalidAnnouncement
    from ingest.domain.deliveries.selection import Selection
    from ingest.domain.errors import QueueUnavailable
    from ingest.domain.orders.order import InvalidOrderId, Order, OrderLine
    from ingest.operations.backends import Backends
    from ingest.operations.failed_orders.dead_letters import replay
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
    "UnexpectedResponse",
    "load_settings",
    "reconcile",
    "replay",
]

# Imported on first use, so that commands start without the parts that they do not need.
_NAMES = {
    "ingest.client.client": "Client",
    "ingest.client.errors": (
        "ApiError ApiUnavailable Forbidden Invalid NotFound RateLimited RequestInProgress Unauthorized UnexpectedResponse"
    ),
    "ingest.client.responses": "FoundOrder",
    "ingest.client.sync_client": "SyncClient",
    "ingest.domain.deliveries.accepted": "Accepted Durability",
    "ingest.domain.deliveries.announcement": "Announcement InvalidAnnouncement",
    "ingest.domain.deliveries.selection": "Selection",
    "ingest.domain.errors": "QueueUnavailable",
    "ingest.domain.orders.order": "InvalidOrderId Order OrderLine",
    "ingest.operations.backends": "Backends",
    "ingest.operations.failed_orders.dead_letters": "replay",
    "ingest.operations.reconcile": "reconcile",
    "ingest.queue.produce.producer": "Producer",
    "ingest.queue.produce.producer_errors": (
        "BacklogFull CannotConfirm EnqueueTimeout IdempotencyKeyReused InvalidIdempotencyKey"
    ),
    "ingest.queue.produce.sync_producer": "SyncProducer",
    "ingest.queue.redis.connection": "QueueRefused",
    "ingest.settings": "load_settings",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
