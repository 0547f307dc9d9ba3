"""Keeps the groups of dead letters and retries of one process for its viewers, who get them without waiting for all entries.

The first request of a source starts a survey in the background. Later requests read the dead letters that were added since, and read all
again when some were removed. It reads only when there are requests. A survey takes at most half of a processor. When one fails, the groups
of the last complete survey stay, with the problem.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, Self

import msgspec

from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.operations.failed_orders.groups import GroupCounts, GroupedEntries, merged
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.partition_retries import PartitionRetries, Position
from ingest.queue.operate.retries import Retries

_EVERYTHING = Selection(everything=True)
# Seconds that a request waits for the survey.
_LONGEST_WAIT = 0.2
# Seconds between surveys, and how many times as long as a survey has taken.
_LEAST_PAUSE, _MOST_PAUSE, _PAUSES = 1.0, 30.0, 2.0
# A survey of 300,000 entries reads thousands of pages. A page that fails is read again after these seconds, so that one command that takes
# too long on a busy machine does not end the survey.
_PAGE_PAUSES = 0.5, 1.0


class GroupSurveys:
    """The groups of several sources.

    Args:
        dead_letters: of each source, by its name. They do not wait for Redis.
        retries: of each source, by its name.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        dead_letters: Mapping[str, DeadLetters],
        retries: Mapping[str, Retries],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dead_letters = {
            source: _Survey(source, _DeadLetterReading(each), clock) for source, each in dead_letters.items()
        }
        self._retries = {source: _Survey(source, _RetryReading(each), clock) for source, each in retries.items()}

    async def __aenter__(self) -> Self:
        """Return the surveys, of which none runs yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the surveys that run."""
        for survey in (*self._dead_letters.values(), *self._retries.values()):
            await survey.close()

    async def dead_letters(self, sources: Collection[str], *, wait: float = _LONGEST_WAIT) -> GroupedEntries:
        """Return the groups of dead letters of these sources that are known within some seconds.

        Raises:
            QueueUnavailable: Redis cannot be used right now, and no survey of these sources is complete yet.
        """
        return await _view([self._dead_letters[source] for source in sources], wait)

    async def retries(self, sources: Collection[str], *, wait: float = _LONGEST_WAIT) -> GroupedEntries:
        """Return the groups of retries of these sources. Errors and arguments as for `dead_letters`."""
        return await _view([self._retries[source] for source in sources], wait)


async def _view(surveys: "Collection[_Survey]", wait: float) -> GroupedEntries:
    running = [task for survey in surveys if (task := survey.refreshed()) is not None]
    if running:
        await asyncio.wait(running, timeout=wait)
    problems = [(survey.age, problem) for survey in surveys if (problem := survey.problem())]
    counts = [each for survey in surveys for each in survey.shown]
    examined = sum(survey.examined for survey in surveys)
    grouped = merged(counts, examined, max(examined, sum(survey.total for survey in surveys)))
    grouped = msgspec.structs.replace(grouped, missing=[each for survey in surveys for each in survey.missing])
    if not problems:
        return grouped
    age, problem = max(problems)
    return msgspec.structs.replace(grouped, age=age, problem=problem)


class _Reading(Protocol):
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


class _Survey:
    """The groups of one source. `shown` is the result of the last complete survey, or of the first one so far."""

    def __init__(self, source: str, reading: _Reading, clock: Callable[[], float]) -> None:
        self.shown: list[GroupCounts] = []
        self.examined = 0
        self.total = 0
        self._source = source
        self._reading = reading
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._again_at = clock()
        self._is_complete = False
        self._completed_at = 0.0
        self._failure: QueueUnavailable | None = None

    @property
    def missing(self) -> Sequence[PartitionTrouble]:
        """Partitions that could not be read."""
        return self._reading.missing

    @property
    def age(self) -> float:
        """Seconds since the last complete survey."""
        return self._clock() - self._completed_at

    def refreshed(self) -> "asyncio.Task[None] | None":
        """Return the running survey, which begins now if the last one has ended some time ago."""
        if self._task is None or self._task.done():
            if self._clock() < self._again_at:
                return None
            self._task = asyncio.create_task(self._survey())
        return self._task

    def problem(self) -> str:
        """Return why the groups are old, or empty. Without groups, raise the error of the last survey."""
        if self._task is not None and self._task.done():
            self._task.result()
        if self._failure is None:
            return ""
        if not self._is_complete:
            raise self._failure
        return str(self._failure)

    async def close(self) -> None:
        """End the survey."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _survey(self) -> None:
        begun = self._clock()
        try:
            if not (self._is_complete and await self._reading.added(self.shown[0])):
                await self._survey_all()
            self._failure, self._completed_at = None, self._clock()
            pause = _PAUSES * (self._completed_at - begun)
        except QueueUnavailable as error:
            self._failure, pause = error, 0.0
        if self._is_complete:
            self.examined = self.total = self.shown[0].examined
        self._again_at = self._clock() + min(_MOST_PAUSE, max(_LEAST_PAUSE, pause))

    async def _survey_all(self) -> None:
        counts = GroupCounts(self._source)
        if not self._is_complete:
            self.shown = [counts]
        self.total = await self._reading.count()
        at = self._clock()
        async for _ in self._reading.all(counts):
            self.examined = counts.examined
            # Other requests come first.
            await asyncio.sleep(self._clock() - at)
            at = self._clock()
        self.shown, self._is_complete = [counts], True


class _DeadLetterReading:
    """Implements `_Reading`. It continues after the last dead letter that it has read."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self.missing: Sequence[PartitionTrouble] = ()
        self._dead_letters = dead_letters
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
                    async for page in part.oldest_summaries(_EVERYTHING, after=last[queue], newest=newest):
                        counts.add(page.entries, page.examined)
                        last[queue], pauses = page.last, iter(_PAGE_PAUSES)
                        yield
                    is_read = True
                except QueueUnavailable as error:
                    await _pause_after(error, pauses)


class _RetryReading:
    """Implements `_Reading`. PartitionRetries come and go, so that all are read each time."""

    def __init__(self, retries: Retries) -> None:
        self.missing: Sequence[PartitionTrouble] = ()
        self._retries = retries

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
                    page = await part.page(position)
                except QueueUnavailable as error:
                    await _pause_after(error, pauses)
                    continue
                counts.add(page.entries, len(page.entries))
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
