"""The trouble that a server causes, by the error of a call."""

from redis import exceptions as redis_errors

from ingest.domain.deliveries.partition_trouble import TroubleKind
from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.connection import QueueFull, QueueRefused
from ingest.queue.redis.topology.role_connections import Redirected


def trouble_of(error: QueueUnavailable) -> TroubleKind:
    """How the server that caused this error troubles its partitions."""
    if isinstance(error, QueueRefused):
        return TroubleKind.DENIED
    is_moving = isinstance(error.__cause__, (Redirected, redis_errors.TryAgainError))
    return TroubleKind.RESHARDING if is_moving else TroubleKind.UNAVAILABLE


def reason_to_wait(error: BaseException) -> str:
    """Why an operation waits that failed with this error, for the user."""
    match error:
        case QueueFull():
            return "Redis is out of memory; waiting for the workers to make room"
        case QueueUnavailable():
            return f"Redis cannot be reached ({error}); trying again"
        case _:
            return f"{error}; waiting for the workers"
