"""The retry sets of a queue over all its partitions: list them, run retries now, or dead-letter them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from redis.asyncio import Redis

from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.partition.retries import PAGE, PartitionRetries, Position, RetryPage, RetrySurvey
from ingest.queue.operate.queue_parts import QueueParts, Reached, ReadLayout

_Result = TypeVar("_Result")


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
    """`PartitionRetries.run_now`, or `PartitionRetries.dead_letter` for an actor."""

    def __call__(self, selected: RetrySurvey, *, on_progress: Callable[[int], None]) -> Awaitable[int]: ...


class Retries:
    """The entries of a queue that wait for their next attempt.

    Methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(
        self, client: Redis, layout: ReadLayout, group: str = DEFAULT_GROUP, assumed: Layout | None = None
    ) -> None:
        self._client = client
        self._parts = QueueParts(
            layout, lambda queue, suffix: PartitionRetries(client, queue, group, id_suffix=suffix), assumed=assumed
        )

    async def by_queue(self) -> Mapping[str, PartitionRetries]:
        """The retries of each partition."""
        return await self._parts.oldest_first()

    async def reached(
        self, call: Callable[[PartitionRetries], Awaitable[_Result]]
    ) -> Reached[PartitionRetries, _Result]:
        """Call the retries of each partition whose server can be used. See `QueueParts.reached`."""
        return await self._parts.reached(self._client, call)

    async def count(self) -> int:
        """How many there are."""
        return sum([await part.count() for part in (await self.by_queue()).values()])

    async def page(
        self,
        after: Position = Position(),  # noqa: B008  immutable
        most: int = PAGE,
        fields: Collection[bytes] = (),
    ) -> RetryPage:
        """The next retries, at most about `most`, the soonest first. See `DeadLetters.summaries`."""
        reached = await self.reached(lambda part: part.page(after, self._parts.share_of(most), fields))
        pages = [page for _, page in reached.found.values()]
        end = min((page.next for page in pages if page.next is not None), key=_order_of, default=None)
        found = [pair for page in pages for pair in zip(page.positions, page.entries, strict=True)]
        if end is not None:
            found = [(position, entry) for position, entry in found if _order_of(position) <= _order_of(end)]
        found.sort(key=lambda pair: _order_of(pair[0]))
        return RetryPage([entry for _, entry in found], end, [position for position, _ in found], reached.missing)

    async def survey(
        self, selection: RetrySelection, *, on_progress: Callable[[int], None] = lambda _: None
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
        self, selected: RetrySelection | TotalRetrySurvey, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Let retries that match, or that a survey has found, be due now, and return how many. See `PartitionRetries.run_now`."""
        return await self._change(lambda part: part.run_now, selected, on_progress)

    async def dead_letter(
        self,
        selected: RetrySelection | TotalRetrySurvey,
        actor: str,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Move retries that match, or that a survey has found, to the dead letters. See `PartitionRetries.dead_letter`."""

        def change_of(part: PartitionRetries) -> _Changes:
            def change(selected: RetrySurvey, *, on_progress: Callable[[int], None]) -> Awaitable[int]:
                return part.dead_letter(selected, actor, on_progress=on_progress)

            return change

        return await self._change(change_of, selected, on_progress)

    async def _change(
        self,
        change_of: Callable[[PartitionRetries], _Changes],
        selected: RetrySelection | TotalRetrySurvey,
        on_progress: Callable[[int], None],
    ) -> int:
        if isinstance(selected, RetrySelection):
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
