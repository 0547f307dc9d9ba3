"""The error of a lookup for which several servers were queried, and none has responded."""

from collections.abc import Sequence

from redis import exceptions as redis_errors

from ingest.queue.redis.checked_connections import NO_PASSWORD, NoQueueThere

_REJECTIONS = (NoQueueThere, redis_errors.AuthenticationError, redis_errors.NoPermissionError)
# The name of a server, and its error.
LookupFailure = tuple[str, Exception]


def summary_of(failures: Sequence[LookupFailure]) -> redis_errors.RedisError:
    """Return one error for all. Waiting may help unless every server has rejected the query."""
    text = "; ".join(f"{server}: {_text_of(error)}" for server, error in failures)
    if all(isinstance(error, _REJECTIONS) for _, error in failures):
        return NoQueueThere(text)
    return redis_errors.ConnectionError(text)


def _text_of(error: Exception) -> str:
    return "it requires a password, and none is given" if str(error).startswith(NO_PASSWORD) else str(error)
