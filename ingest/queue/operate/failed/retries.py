"""The retry set of a queue: list it, run retries now, or dead-letter them.

Each script moves some entries of a partition, all of them or none. An entry that has been moved is not moved again, so every call can be
repeated. If the process dies here, the earlier partitions and pages are done and the others untouched.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from redis.asyncio import Redis

from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.jobs import JobKind
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.failed.partition_dead_letters import Change, Survey
from ingest.queue.operate.failed.partition_retries import PAGE, PartitionRetries, Position, RetryPage, RetrySurvey
from ingest.queue.operate.queue_parts import PartitionedEntries, Progress, QueueParts, ReadLayout


@dataclass(frozen=True, slots=True)
class TotalRetrySurvey(Survey[Mapping[str, str]]):
    """The retries that match a selection. `newest` is the latest possible ID of an entry, by the time of each server.

    Attributes:
        parts: of each partition, by the name of its queue.
    """

    parts: Mapping[str, RetrySurvey] = field(default_factory=dict)


class Retries(PartitionedEntries[PartitionRetries]):
    """The entries of a queue that wait for their next attempt.

    Methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(
        self, client: Redis, layout: ReadLayout, group: str = DEFAULT_GROUP, assumed: Layout | None = None
    ) -> None:
        def part(queue: str, suffix: str) -> PartitionRetries:
            return PartitionRetries(client, queue, group, id_suffix=suffix)

        super().__init__(client, QueueParts(layout, part, assumed=assumed))

    async def count(self) -> int:
        """How many there are in the partitions that can be read."""
        return sum(count for _, count in (await self.reached(PartitionRetries.count)).found.values())

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
        self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> TotalRetrySurvey:
        """Find the retries that match in the partitions that can be read, and count them by reason.

        `on_progress` is called with the number of examined ones.
        """
        reached, parts, progress = await self.reached(PartitionRetries.server_ms), {}, Progress(on_progress)
        for queue, (part, _) in reached.found.items():
            parts[queue] = await part.survey(selection, on_progress=progress.note)
            progress.end_part()
        reasons = sum((Counter(each.reasons) for each in parts.values()), Counter[str]())
        missing = selection.ids.intersection(*(each.missing for each in parts.values()))
        newest = {queue: f"{now}-0" for queue, (_, now) in reached.found.items()}
        return TotalRetrySurvey(reasons, missing, newest, reached.missing, parts)

    async def change(
        self,
        kind: JobKind,
        selected: Selection | TotalRetrySurvey,
        actor: str = "",
        *,
        on_progress: Callable[[Change], None] = lambda _: None,
    ) -> Change:
        """Change retries that match, or that a survey has found. See `PartitionRetries.change`."""
        if isinstance(selected, Selection):
            selected = await self.survey(selected, on_progress=lambda _: on_progress(Change()))
        reached = await self.reached(PartitionRetries.count)
        done, progress = 0, Progress(lambda changed: on_progress(Change(changed)))
        for queue, survey in selected.parts.items():
            if not survey.names:
                continue
            if queue in reached.found:
                done += await reached.found[queue][0].change(kind, survey, actor, on_progress=progress.note)
                progress.end_part()
            elif lost := [each for each in reached.missing if each.queue == queue]:
                raise QueueUnavailable(lost[0].text)
            # Otherwise a former partition that is no longer read, which is empty.
        return Change(done, unavailable=tuple(selected.unavailable))


def _order_of(position: Position) -> tuple[float, str]:
    return float(position.due), position.name
