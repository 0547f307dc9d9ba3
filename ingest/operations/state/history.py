"""The history of all sources in the last hours: arrived, stored and failed orders and the age of the oldest one in each minute.

Workers add the orders that they finish to the counts of each minute in Redis. A process with a console notes the queues at the end of each minute.
The orders that have arrived are those that have left the queue, and the growth of the queue. A minute whose queue was not noted is unknown,
because no process with a console was running, or a server could not be read.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.operations.backends import Backends
from ingest.operations.state.flow_rates import sum_of_known
from ingest.operations.state.snapshot import Snapshot
from ingest.operations.state.snapshots import Snapshots
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.minute_counts import Count, Counts, note_queues, of_queue, read_counts
from ingest.queue.redis.connection import QueueRefused
from ingest.telemetry.logs import get_logger

_log = get_logger("api")

BARS = 60
"""A history of one hour has a bar for each minute, a history of N hours one for N minutes."""
# Seconds for which a history of one hour is shared. A longer one is shared for longer, because it is read from more keys.
_SHARED_FOR = 2.0
_NOTED_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One or several minutes of one or several sources. None is unknown.

    Attributes:
        arrived: orders that came into the queue, with replays.
        stored: orders with a new or unchanged row.
        failed: deliveries that were scheduled again or dead-lettered.
        oldest: age of the oldest unfinished order at the end of a minute, in seconds.
    """

    arrived: int | None = None
    stored: int | None = None
    failed: int | None = None
    oldest: int | None = None

    @classmethod
    def total(cls, bars: Iterable[Self]) -> "Bar":
        """Add up the known numbers of several minutes or sources."""
        bars = list(bars)
        return Bar(
            sum_of_known(each.arrived for each in bars),
            sum_of_known(each.stored for each in bars),
            sum_of_known(each.failed for each in bars),
            max((each.oldest for each in bars if each.oldest is not None), default=None),
        )


class History:
    """The history, read once for all viewers of a process.

    Args:
        redis: a client of the queue server.
        sources: all sources.
        snapshots: of these sources.
        clock: Unix time.
    """

    def __init__(
        self, redis: Redis, sources: Sequence[Backends], snapshots: Snapshots, clock: Callable[[], float] = time.time
    ) -> None:
        self._redis = redis
        self._keys = {each.source: Keys.of(each.stream, each.group) for each in sources}
        self._snapshots = snapshots
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read: dict[int, tuple[float, Mapping[str, Sequence[Bar]]]] = {}

    @asynccontextmanager
    async def noting(self) -> AsyncIterator[None]:
        """Note the queues at the end of each minute while the block runs."""
        task = asyncio.create_task(self._note_regularly())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def note(self) -> None:
        """Note the queues as they were at the end of the last minute, unless another process has done so."""
        minute = int(self._clock()) // 60 - 1
        snapshot = await self._snapshots.latest()
        queues = [(self._keys[each.source], each.queue) for each in snapshot.sources if each.queue is not None]
        await note_queues(self._redis, minute, queues)

    async def _note_regularly(self) -> None:
        was_refused = False
        while True:
            try:
                await self.note()
                was_refused = False
            except QueueUnavailable as error:
                # The snapshots show an outage. A missing right stays until an operator adds it.
                if isinstance(error, QueueRefused) and not was_refused:
                    _log.warning("counts_not_reported", key="minutes", problem=str(error))
                    was_refused = True
            await asyncio.sleep(60 - self._clock() % 60)

    async def bars(self, snapshot: Snapshot, hours: int) -> Mapping[str, Sequence[Bar]]:
        """Return the bars of each source, the newest last. They are empty while Redis is unavailable."""
        async with self._reading:
            read_at, found = self._read.get(hours, (0.0, {}))
            if not found or self._clock() - read_at >= _SHARED_FOR * hours:
                last = int(self._clock()) // 60
                try:
                    counts = await read_counts(self._redis, [*self._keys.values()], last - BARS * hours, last)
                except QueueUnavailable:
                    return {}
                now = {each.source: of_queue(each.queue) for each in snapshot.sources if each.queue is not None}
                # A minute that has just ended may not be noted yet.
                current = [last] if self._clock() % 60 > _NOTED_WITHIN else [last - 1, last]
                found = {}
                for name, each in zip(self._keys, counts, strict=True):
                    known = {minute: {**now.get(name, {}), **each.get(minute, {})} for minute in current}
                    found[name] = bars_of({**each, **known}, last, hours)
                self._read[hours] = self._clock(), found
            return found


def bars_of(counts: Mapping[int, Counts], last: int, width: int) -> Sequence[Bar]:
    """Return the bars, each of `width` minutes, up to the minute `last`."""
    first = last - BARS * width + 1
    minutes = [_bar(counts.get(minute, {}), counts.get(minute - 1, {})) for minute in range(first, last + 1)]
    return [Bar.total(minutes[at : at + width]) for at in range(0, len(minutes), width)]


def _bar(counts: Counts, before: Counts) -> Bar:
    if not counts:
        return Bar()
    arrived = None
    if Count.IN_QUEUE in counts and Count.IN_QUEUE in before:
        growth = counts[Count.IN_QUEUE] - before[Count.IN_QUEUE]
        arrived = max(0, growth + counts.get(Count.ENDED, 0))
    return Bar(arrived, counts.get(Count.STORED, 0), counts.get(Count.FAILED, 0), counts.get(Count.OLDEST))


def total_of(bars: Iterable[Sequence[Bar]]) -> Sequence[Bar]:
    """Add up the bars of several sources."""
    return [Bar.total(each) for each in zip(*bars, strict=True)]
