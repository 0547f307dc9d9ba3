"""Keeps the groups of dead letters and retries of one process for its viewers, who get them without waiting for all entries.

The first request of a source starts a survey in the background. Later requests read the dead letters that were added since, and read all
again when some were removed. It reads only when there are requests. A survey takes at most half of a processor. When one fails, the groups
of the last complete survey stay, with the problem.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

import msgspec

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.entries import FailedEntries, entries_of
from ingest.operations.failed_orders.group_readings import Reading, reading_of
from ingest.operations.failed_orders.groups import GroupCounts, GroupedEntries, merged
from ingest.queue.redis.connection import control_client

# Seconds that a request waits for the survey.
_LONGEST_WAIT = 0.2
# Seconds between surveys, and how many times as long as a survey has taken.
_LEAST_PAUSE, _MOST_PAUSE, _PAUSES = 1.0, 30.0, 2.0


class GroupSurveys:
    """The groups of several sources.

    Args:
        entries: of each source, by its name. Dead letters do not wait for Redis.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        entries: Mapping[str, Mapping[EntryKind, FailedEntries]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._surveys = {
            (kind, source): _Survey(source, reading_of(each), clock)
            for source, kinds in entries.items()
            for kind, each in kinds.items()
        }

    async def __aenter__(self) -> Self:
        """Return the surveys, of which none runs yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the surveys that run."""
        for survey in self._surveys.values():
            await survey.close()

    async def of(self, kind: EntryKind, sources: Collection[str], *, wait: float = _LONGEST_WAIT) -> GroupedEntries:
        """Return the groups of these sources that are known within some seconds.

        Raises:
            QueueUnavailable: Redis cannot be used right now, and no survey of these sources is complete yet.
        """
        return await _view([self._surveys[kind, source] for source in sources], wait)


async def group(
    sources: Sequence[Backends],
    kind: EntryKind,
    selection: Selection,
    *,
    on_progress: Callable[[int, int], None] = lambda _examined, _total: None,
) -> GroupedEntries:
    """Read all entries of the partitions that can be read, and group those that match.

    Raises:
        QueueUnavailable: no server of a source can be used.
    """
    # Sources share one Redis.
    async with control_client(sources[0].redis_url) as client:
        readings = [reading_of(entries_of(client, each, kind), selection) for each in sources]
        total, counts = sum([await each.count() for each in readings]), [GroupCounts(each.source) for each in sources]
        for reading, count in zip(readings, counts, strict=True):
            async for _ in reading.all(count):
                on_progress(sum(each.examined for each in counts), total)
    examined = sum(each.examined for each in counts)
    missing = [trouble for reading in readings for trouble in reading.missing]
    return msgspec.structs.replace(merged(counts, examined, examined), missing=missing)


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


class _Survey:
    """The groups of one source. `shown` is the result of the last complete survey, or of the first one so far."""

    def __init__(self, source: str, reading: Reading, clock: Callable[[], float]) -> None:
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
