"""Tells how long a queue that is full will need to make room, from how fast it gets shorter.

Redis is queried only while the queue is full, and by each producer every two seconds at most.
"""

import random
import time
from collections import deque
from collections.abc import Callable

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.connection import NoGroup, translated

# Seconds between two looks, and for how long one counts.
_EVERY = 2.0
_WINDOW = 20.0
# A queue that has not moved for less than this may be about to.
_STALLED = 10.0
_SHORTEST = 1.0
_LONGEST = 300.0
# The time to wait if the rate is unknown.
UNKNOWN = 5.0


class DrainRate:
    """How many entries a second leave a stream, from looks at how many have."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, at: float, removed: int) -> None:
        """Note how many entries have left the stream until a time (s)."""
        if self._looks and (removed < self._looks[-1][1] or at - self._looks[-1][0] > _WINDOW):
            # Another stream of that name, or too long ago.
            self._looks.clear()
        self._looks.append((at, removed))
        while at - self._looks[0][0] > _WINDOW:
            self._looks.popleft()

    def per_second(self) -> float | None:
        """Entries per second, or None if that is not known yet."""
        if len(self._looks) < 2:
            return None
        (began, before), (ended, after) = self._looks[0], self._looks[-1]
        if after == before and ended - began < _STALLED:
            return None
        return (after - before) / (ended - began)


class Backlog:
    """Tells when there will be room in a stream that is full."""

    def __init__(self, client: Redis, stream: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._stream = stream
        self._clock = clock
        self._rate = DrainRate()
        self._looked_at = -_EVERY
        self._refused = 0

    async def retry_after(self, orders: int) -> float:
        """Seconds after which orders that do not fit now may fit, including orders that were rejected shortly before."""
        now = self._clock()
        if now - self._looked_at >= _EVERY:
            self._looked_at, self._refused = now, 0
            await self._look(now)
        self._refused += orders
        rate = self._rate.per_second()
        if rate is None:
            return UNKNOWN
        return _bounded(self._refused / rate) if rate else _LONGEST

    async def _look(self, now: float) -> None:
        try:
            with translated():
                about = await self._client.xinfo_stream(self._stream)
        except (QueueUnavailable, NoGroup):
            return
        # Not every server returns how many entries a stream has had since its beginning.
        if (added := about.get("entries-added")) is not None:
            self._rate.note(now, added - about["length"])


def spread(retry_after: float, draw: Callable[[float, float], float] = random.uniform) -> float:
    """The seconds for one of many callers, so that they do not return together."""
    return _bounded(retry_after * draw(0.75, 1.25))


def _bounded(seconds: float) -> float:
    return min(_LONGEST, max(_SHORTEST, seconds))
