"""The kind of trouble that a server causes, by the error of a call."""

from redis import exceptions as redis_errors

from ingest.domain.deliveries.partition_trouble import TroubleKind
from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.connection import QueueRefused
from ingest.queue.redis.topology.role_connections import Redirected


def trouble_of(error: QueueUnavailable) -> TroubleKind:
    """How the server that caused this error troubles its partitions."""
    if isinstance(error, QueueRefused):
        return TroubleKind.DENIED
    is_moving = isinstance(error.__cause__, (Redirected, redis_errors.TryAgainError))
    return TroubleKind.RESHARDING if is_moving else TroubleKind.UNAVAILABLE
