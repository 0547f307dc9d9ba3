"""The retry sets of a queue over all its partitions: list them, run retries now, or dead-letter them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio import Redis

from ingest.domain.deliveries.selection import Selection
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.partitioned.queue_parts import QueueParts, ReadLayout
from ingest.queue.operate.retries import PAGE, Position, Retries, RetryPage, RetrySurvey


@dataclass(frozen=True, slots=True)
class TotalRetrySurvey:
    """The retries that match a selection.

    Attributes:
        parts: of each partition, by the name of its queue.
    """

    parts: Mapping[str, RetrySurvey]

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many for each reason."""
        return sum((Counter(part.reasons) for part in self.parts.values()), Counter[str]())

    @property
    def missing(self) -> frozenset[str]:
        """Selected orders that have no matching retry."""
        return frozenset.intersection(*(part.missing for part in self.parts.values()))

    @property
    def count(self) -> int:
        """How many match."""
        return sum(part.count for part in self.parts.values())


class _Changes(Protocol):
    """`Retries.run_now`, or `Retries.dead_letter` for an actor."""

    def __call__(self, selected: RetrySurvey, *, on_progress: Callable[[int], None]) -> Awaitable[int]: ...


class PartitionedRetries:
    """The entries of a queue that wait for their next attempt.

    Methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, layout: ReadLayout, group: str = DEFAULT_GROUP) -> None:
        self._parts = QueueParts(layout, lambda queue, suffix: Retries(client, queue, group, id_suffix=suffix))

    async def by_queue(self) -> Mapping[str, Retries]:
        """The retries of each partition."""
        return await self._parts.oldest_first()

    async def count(self) -> int:
        """How many there are."""
        return sum([await part.count() for part in (await self.by_queue()).values()])

    async def page(
        self,
        after: Position = Position(),  # noqa: B008  immutable
        most: int = PAGE,
        fields: Collection[bytes] = (),
    ) -> RetryPage:
        """The next retries, at most about `most`, the soonest first. See `PartitionedDeadLetters.summaries`."""
        parts = [*(await self.by_queue()).values()]
        if len(parts) == 1:
            return await parts[0].page(after, most, fields)
        share = -(-most // len(parts))
        pages = await asyncio.gather(*(part.page(after, share, fields) for part in parts))
        end = min((page.next for page in pages if page.next is not None), key=_order_of, default=None)
        found = [pair for page in pages for pair in zip(page.positions, page.entries, strict=True)]
        if end is not None:
            found = [(position, entry) for position, entry in found if _order_of(position) <= _order_of(end)]
        found.sort(key=lambda pair: _order_of(pair[0]))
        return RetryPage([entry for _, entry in found], end, [position for position, _ in found])

    async def survey(
        self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> TotalRetrySurvey:
        """Find the retries that match, and count them by reason. `on_progress` is called with the number of examined ones."""
        found, examined = {}, 0
        for queue, part in (await self.by_queue()).items():
            last = 0

            def note(count: int, before: int = examined) -> None:
                nonlocal last
                last = count
                on_progress(before + count)

            found[queue] = await part.survey(selection, on_progress=note)
            examined += last
        return TotalRetrySurvey(found)

    async def run_now(
        self, selected: Selection | TotalRetrySurvey, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Let retries that match, or that a survey has found, be due now, and return how many. See `Retries.run_now`."""
        return await self._change(lambda part: part.run_now, selected, on_progress)

    async def dead_letter(
        self,
        selected: Selection | TotalRetrySurvey,
        actor: str,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Move retries that match, or that a survey has found, to the dead letters. See `Retries.dead_letter`."""

        def change_of(part: Retries) -> _Changes:
            def change(selected: RetrySurvey, *, on_progress: Callable[[int], None]) -> Awaitable[int]:
                return part.dead_letter(selected, actor, on_progress=on_progress)

            return change

        return await self._change(change_of, selected, on_progress)

    async def _change(
        self,
        change_of: Callable[[Retries], _Changes],
        selected: Selection | TotalRetrySurvey,
        on_progress: Callable[[int], None],
    ) -> int:
        if isinstance(selected, Selection):
            selected = await self.survey(selected, on_progress=lambda _: on_progress(0))
        parts, done = await self.by_queue(), 0
        for queue, survey in selected.parts.items():

            def note(count: int, before: int = done) -> None:
                on_progress(before + count)

            # A former partition that is no longer read is empty.
            if survey.names and (part := parts.get(queue)) is not None:
                done += await change_of(part)(survey, on_progress=note)
        return done


def _order_of(position: Position) -> tuple[float, str]:
    return float(position.due), position.name
