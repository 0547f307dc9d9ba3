"""The reasons why orders were not accepted, in addition to the errors of every user of the queue."""

from collections.abc import Sequence

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.queue.redis.connection import QueueRefused

CLOSED = "the producer is closed"


class BacklogFull(Unavailable):
    """The backlog is at its limit. Workers will make room. None of the rejected orders is in the queue.

    Attributes:
        retry_after: seconds after which to try again.
    """

    server = "Redis"
    retry_after: float = 1.0


class SourcePaused(BacklogFull):
    """A pause of the source rejects new orders.

    Args:
        reason: as the operator gave it.
        retry_after: seconds after which to try again.
    """

    server = "the source"

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__("the source is paused and accepts no orders" + (f": {reason}" if reason else ""))
        self.retry_after = retry_after


class EnqueueTimeout(QueueUnavailable, TimeoutError):
    """Redis has not confirmed the orders in time: they may or may not have been accepted.

    To send them again is safe: with the same idempotency key they are accepted once, without one they are fetched twice
    and stored once.
    """


class CannotConfirm(QueueRefused):
    """This Redis cannot confirm the promise of `durability`. The operator has to change its configuration, or ours."""

    exit_code = 2


class IdempotencyKeyReused(ValueError):
    """The idempotency key belongs to other orders: nothing of this call was accepted."""


class InvalidIdempotencyKey(ValueError):
    """An idempotency key is 1 to 200 printable characters."""


class QueueClosed(Exception):
    """The queue is that of a former partition, and accepts no orders.

    Attributes:
        orders: orders of the call that were not accepted.
        duplicates: how many of the others needed no entry.
    """

    def __init__(self, orders: Sequence[str | Announcement] = (), duplicates: int = 0) -> None:
        super().__init__()
        self.orders = orders
        self.duplicates = duplicates
