"""The errors of producers, in addition to the errors of every user of the queue."""

from collections.abc import Sequence

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.queue.redis.connection import QueueRefused

CLOSED = "the producer is closed"


class BacklogFull(Unavailable):
    """The backlog is at its limit, until workers make room. The rejected orders are not in the queue.

    Attributes:
        retry_after: Seconds after which to try again.
    """

    server = "Redis"
    retry_after: float = 1.0


class SourcePaused(BacklogFull):
    """A pause of the source rejects new orders.

    Args:
        reason: The reason that the operator gave.
        retry_after: Seconds after which to try again.
    """

    server = "the source"

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__("the source is paused and accepts no orders" + (f": {reason}" if reason else ""))
        self.retry_after = retry_after


class EnqueueTimeout(QueueUnavailable, TimeoutError):
    """Redis has not confirmed the orders in time. They may or may not have been accepted.

    You can safely enqueue them again. With the same idempotency key, they are accepted once. Without a key, they may be fetched
    twice, and are stored once.
    """


class CannotConfirm(QueueRefused):
    """This Redis cannot confirm `durability`. The operator has to change the configuration."""

    exit_code = 2


class IdempotencyKeyReused(ValueError):
    """The idempotency key belongs to other orders. No order of this call was accepted."""


class InvalidIdempotencyKey(ValueError):
    """An idempotency key is 1 to 200 printable characters."""


class QueueClosed(Exception):
    """The queue belongs to a former partition, and accepts no orders.

    Attributes:
        orders: Orders of the call that were not accepted.
        duplicates: How many of the others needed no entry.
    """

    def __init__(self, orders: Sequence[str | Announcement] = (), duplicates: int = 0) -> None:
        super().__init__()
        self.orders = orders
        self.duplicates = duplicates
