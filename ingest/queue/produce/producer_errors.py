"""Why orders were not accepted, beside what every user of the queue may meet."""

from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.queue.redis.connection import QueueRefused


class BacklogFull(Unavailable):
    """The backlog is at its limit; workers will make room. Nothing of what was refused is in the queue.

    Attributes:
        retry_after: seconds after which to try again.
    """

    server = "Redis"
    retry_after: float = 1.0


class EnqueueTimeout(QueueUnavailable, TimeoutError):
    """Redis has not confirmed the orders in time: they may or may not have been accepted.

    To send them again is safe: with the same idempotency key they are accepted once, without one they are fetched twice
    and stored once.
    """


class CannotConfirm(QueueRefused):
    """This Redis cannot confirm what `durability` promises: a person has to change its configuration, or ours."""

    exit_code = 2


class IdempotencyKeyReused(ValueError):
    """The idempotency key belongs to other orders: nothing of this call was accepted."""


class InvalidIdempotencyKey(ValueError):
    """An idempotency key is 1 to 200 printable characters."""
