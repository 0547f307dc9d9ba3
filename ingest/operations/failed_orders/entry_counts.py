"""Counts the dead letters or retries of a selection for the preview of a change, in the background.

The first request of a selection starts the count, and later ones return how far it has come. The result is kept for a while. If the process
dies, the next request starts again.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.queue.operate.failed.partition_dead_letters import Survey

# Seconds that a request waits for the count.
_LONGEST_WAIT = 0.2
# Seconds for which a result is kept, so that a page that is loaded again shows it.
_KEPT = 15.0
_Key = tuple[str, EntryKind, bytes]
# Counts that run or are kept. A further one ends the oldest.
_MOST = 50


@dataclass(slots=True)
class EntryCount:
    """How far a selection has been counted.

    Attributes:
        examined: entries that were read so far.
        found: those that match, when all were read. A change ends at their `newest`.
    """

    examined: int = 0
    found: Survey[Mapping[str, str]] | None = None


@dataclass(slots=True)
class _Counting:
    count: EntryCount
    task: asyncio.Task[None]
    until: float = float("inf")


class EntryCounts:
    """The counts of several sources.

    Args:
        entries: of each source, by its name. Dead letters do not wait for Redis.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        entries: Mapping[str, Mapping[EntryKind, FailedEntries]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._running: dict[_Key, _Counting] = {}

    async def __aenter__(self) -> Self:
        """Return the counts, of which none runs yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the counts that run."""
        for key in [*self._running]:
            await self._end(key)

    async def of(
        self, source: str, kind: EntryKind, selection: Selection, *, wait: float = _LONGEST_WAIT
    ) -> EntryCount:
        """Return the count of a source's entries of a kind as far as it is known within some seconds.

        Raises:
            QueueUnavailable: Redis cannot be used right now.
        """
        key = (source, kind, msgspec.json.encode(selection_as_dict(selection), order="deterministic"))
        for other in [each for each, counting in self._running.items() if counting.until < self._clock()]:
            await self._end(other)
        if key not in self._running:
            while len(self._running) >= _MOST:
                await self._end(next(iter(self._running)))
            count = EntryCount()
            self._running[key] = _Counting(count, asyncio.create_task(self._count(source, kind, selection, count)))
        counting = self._running[key]
        await asyncio.wait([counting.task], timeout=wait)
        # A count that another request has ended stays incomplete, and the next request begins it again.
        if counting.task.done() and not counting.task.cancelled():
            counting.until = min(counting.until, self._clock() + _KEPT)
            if counting.task.exception() is not None:
                # Several requests may wait for the same count.
                if self._running.get(key) is counting:
                    del self._running[key]
                counting.task.result()
        return counting.count

    async def _count(self, source: str, kind: EntryKind, selection: Selection, count: EntryCount) -> None:
        def note(examined: int, _: int | None) -> None:
            count.examined = examined

        count.found = await self._entries[source][kind].survey(selection, on_progress=note)

    async def _end(self, key: _Key) -> None:
        if (counting := self._running.pop(key, None)) is not None:
            counting.task.cancel()
            await asyncio.gather(counting.task, return_exceptions=True)
