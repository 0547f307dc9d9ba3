"""The partitions of a queue, as producers follow them while they run.

Calls use the layout of the last reading, which a background task repeats. An order that reaches a former partition too late is not lost:
its queue is closed, and the producer reads the record again before it sends the order again.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.domain.partitions import Layout
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.group_commit import for_one_caller
from ingest.queue.produce.producer_errors import CLOSED

# Seconds after which the layout is read again, if orders are enqueued.
_INTERVAL = 5.0
_AFTER_ERROR = 1.0


class FollowedLayout:
    """The layout of one queue. Concurrent calls share each reading.

    Args:
        client: A connection to Redis.
        queue: Name of the whole queue.
        initial: The configured number of partitions, with which a missing record is created.
    """

    def __init__(self, client: Redis, queue: str, initial: int = 1) -> None:
        self._record = LayoutRecord(client, queue, initial)
        self._is_known = False
        self._is_closed = False
        self._due_at = 0.0
        self._reading: asyncio.Task[Layout] | None = None

    @property
    def ready(self) -> Layout | None:
        """The layout, if it was read a few seconds ago."""
        return self._record.layout if self._is_known and time.monotonic() < self._due_at else None

    async def current(self) -> Layout:
        """Return the layout, which may have changed a few seconds ago. Only the first call waits for Redis.

        Raises:
            QueueUnavailable: Redis cannot be used right now, and the layout is unknown.
        """
        reading = self._reading
        if self.ready is None:
            reading = self._begin(self._record.recent)
        if not self._is_known and reading is not None:
            await self._wait(reading)
        return self._record.layout

    async def other_than(self, known: Layout) -> Layout:
        """Return the layout that has replaced a known one.

        Raises:
            QueueUnavailable: Redis cannot be used right now, or the record contains no other layout.
        """
        # A reading that has begun before may have missed the change.
        for _ in range(2):
            if self._record.layout == known:
                await self._wait(self._begin(self._record.read))
        if self._record.layout == known:
            raise QueueUnavailable(
                f"a partition of {known.queue} is closed, and the record of its partitions is not newer"
            )
        return self._record.layout

    async def close(self) -> None:
        """Stop reading. Calls that wait for a reading raise `QueueUnavailable`."""
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _wait(self, reading: "asyncio.Task[Layout]") -> None:
        await asyncio.wait([reading])
        if reading.cancelled():
            raise QueueUnavailable(CLOSED)
        if isinstance(error := reading.exception(), Unavailable):
            raise for_one_caller(error)
        reading.result()

    def _begin(self, read: Callable[[], Coroutine[Any, Any, Layout]]) -> "asyncio.Task[Layout]":
        if self._is_closed:
            raise QueueUnavailable(CLOSED)
        if self._reading is None:
            self._reading = asyncio.create_task(read())
            self._reading.add_done_callback(self._end)
        return self._reading

    def _end(self, reading: "asyncio.Task[Layout]") -> None:
        self._reading = None
        # The error of a reading for which no call waits has no effect.
        is_read = not reading.cancelled() and reading.exception() is None
        self._is_known = self._is_known or is_read
        self._due_at = time.monotonic() + (_INTERVAL if is_read else _AFTER_ERROR)
