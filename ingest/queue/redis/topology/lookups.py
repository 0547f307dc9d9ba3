"""Lookups of servers that may have been replaced, which all connections of a topology share."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from redis import exceptions as redis_errors

from ingest.domain.exponential_pause import exponential_pause
from ingest.queue.redis.checked_connections import NO_PASSWORD, NoQueueThere

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_REJECTIONS = (NoQueueThere, redis_errors.AuthenticationError, redis_errors.NoPermissionError)


class Lookups(ABC):
    """Connections that look a server up at the same time share one lookup.

    While no connection to a found server succeeds, lookups are delayed with exponential backoff and jitter, so that many processes do not
    query the servers continuously.

    Attributes:
        lookups: how many there were.
        unconfirmed: how many there were since a connection has succeeded.
        uniform: returns a random number between two others.
    """

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self.lookups = self.unconfirmed = 0
        self.uniform = uniform
        self._turn = asyncio.Lock()
        self._looked_up_at = float("-inf")
        self._failure: redis_errors.RedisError | None = None

    @abstractmethod
    async def look_up(self) -> redis_errors.RedisError | None:
        """Query one server after the other. Returns an error if none responds."""

    async def refresh(self) -> None:
        """Look up, or wait for the lookup of another connection. It raises the error of the lookup."""
        lookups, clock = self.lookups, asyncio.get_running_loop().time
        async with self._turn:
            if lookups == self.lookups:
                if self.unconfirmed:
                    longest = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, self.unconfirmed - 1)
                    passed = clock() - self._looked_up_at
                    await asyncio.sleep(max(0.0, self.uniform(longest / 2, longest) - passed))
                self.unconfirmed += 1
                self._failure = await self.look_up()
                self._looked_up_at = clock()
                self.lookups += 1
            failure = self._failure
        if failure is not None:
            raise failure


def summary_of(failures: Mapping[str, Exception]) -> redis_errors.RedisError:
    """Return one error for all servers. Waiting may help unless every server has rejected the query."""
    denied = "it requires a password, and none is given"
    texts = {server: denied if str(error).startswith(NO_PASSWORD) else error for server, error in failures.items()}
    text = "; ".join(f"{server}: {reason}" for server, reason in texts.items())
    if all(isinstance(error, _REJECTIONS) for error in failures.values()):
        return NoQueueThere(text)
    return redis_errors.ConnectionError(text)
