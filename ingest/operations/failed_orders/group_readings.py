"""Reads the entries of one source to group them. Partitions that cannot be read are omitted and reported."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.operations.failed_orders.entries import DeadLetterEntries, FailedEntries, RetryEntries
from ingest.operations.failed_orders.groups import GroupCounts
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.failed.partition_retries import PartitionRetries, Position
from ingest.queue.operate.failed.retries import Retries

_EVERYTHING = Selection(everything=True)
# A survey of 300,000 entries reads thousands of pages. A page that fails is read again after these seconds, so that one command that takes
# too long on a busy machine does not end the survey.
_PAGE_PAUSES = 0.5, 1.0


class Reading(Protocol):
    """Reads the entries of one source.

    Attributes:
        missing: partitions that could not be read.
    """

    missing: Sequence[PartitionTrouble]

    async def count(self) -> int:
        """Return how many there are."""

    def all(self, counts: GroupCounts) -> AsyncIterator[None]:
        """Add all entries to the counts, page by page."""

    async def added(self, counts: GroupCounts) -> bool:
        """Add the entries that were added since. Return whether the counts are right, because none was removed."""


def reading_of(entries: FailedEntries, selection: Selection = _EVERYTHING) -> Reading:
    """Return the reading of the entries that match."""
    match entries:
        case DeadLetterEntries():
            return _DeadLetterReading(entries.queue, selection)
        case RetryEntries():
            return _RetryReading(entries.queue, selection)


class _DeadLetterReading:
    """Implements `Reading`. It continues after the last dead letter that it has read."""

    def __init__(self, dead_letters: DeadLetters, selection: Selection) -> None:
        self.missing: Sequence[PartitionTrouble] = ()
        self._dead_letters = dead_letters
        self._selection = selection
        self._last: dict[str, str] = {}

    async def count(self) -> int:
        return sum(count for _, count in (await self._dead_letters.reached(PartitionDeadLetters.count)).found.values())

    async def all(self, counts: GroupCounts) -> AsyncIterator[None]:
        last: dict[str, str] = {}
        async for _ in self._read(counts, last):
            yield
        self._last = last

    async def added(self, counts: GroupCounts) -> bool:
        if self._last.keys() != (await self._dead_letters.reached(PartitionDeadLetters.count)).found.keys():
            return False
        async for _ in self._read(counts, self._last):
            pass
        return counts.examined <= await self.count()

    async def _read(self, counts: GroupCounts, last: dict[str, str]) -> AsyncIterator[None]:
        reached = await self._dead_letters.reached(PartitionDeadLetters.newest)
        self.missing = reached.missing
        for queue, (part, newest) in reached.found.items():
            last.setdefault(queue, "")
            pauses, is_read = iter(_PAGE_PAUSES), False
            while not is_read:
                try:
                    async for page in part.oldest_summaries(self._selection, after=last[queue], newest=newest):
                        counts.add(page.entries, page.examined)
                        last[queue], pauses = page.last, iter(_PAGE_PAUSES)
                        yield
                    is_read = True
                except QueueUnavailable as error:
                    await _pause_after(error, pauses)


class _RetryReading:
    """Implements `Reading`. Retries come and go, so that all are read each time."""

    def __init__(self, retries: Retries, selection: Selection) -> None:
        self.missing: Sequence[PartitionTrouble] = ()
        self._retries = retries
        self._selection = selection

    async def count(self) -> int:
        return sum(count for _, count in (await self._retries.reached(PartitionRetries.count)).found.values())

    async def all(self, counts: GroupCounts) -> AsyncIterator[None]:
        reached = await self._retries.reached(PartitionRetries.count)
        self.missing = reached.missing
        for part, _ in reached.found.values():
            position: Position | None = Position()
            pauses = iter(_PAGE_PAUSES)
            while position is not None:
                try:
                    page = await part.page(position, fields=self._selection.filter.unlisted_fields)
                except QueueUnavailable as error:
                    await _pause_after(error, pauses)
                    continue
                counts.add(filter(self._selection.matches, page.entries), len(page.entries))
                position, pauses = page.next, iter(_PAGE_PAUSES)
                yield

    async def added(self, counts: GroupCounts) -> bool:
        del counts
        return False


async def _pause_after(error: QueueUnavailable, pauses: Iterator[float]) -> None:
    """Wait before a page is read again, or raise the error if that has been tried or does not help."""
    pause = None if isinstance(error, UserError) else next(pauses, None)
    if pause is None:
        raise error
    await asyncio.sleep(pause)
