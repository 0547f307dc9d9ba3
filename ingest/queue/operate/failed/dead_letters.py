"""The dead letters of a queue: search, replay and drop them.

A replay or a drop moves several dead letters of a partition by one script, all of them or none. A dead letter that is gone is not moved
again, so the call can be repeated after a lost reply, and two concurrent operators move each dead letter once. If the process dies here,
the earlier partitions and pages are done and the others untouched.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from redis.asyncio import Redis

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.jobs import JobKind
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.operate.failed.partition_dead_letters import Change, PartitionDeadLetters, Survey
from ingest.queue.operate.queue_parts import PartitionedEntries, Progress, QueueParts, Reached, ReadLayout
from ingest.queue.operate.repeated_calls import RepeatedCalls


class DeadLetterList(NamedTuple):
    """A page of a list, the newest first.

    Attributes:
        entries: the dead letters that match.
        next: where the next page begins, or None after the last one.
        missing: partitions that cannot be read.
    """

    entries: Sequence[DeadLetterEntry]
    next: str | None
    missing: Sequence[PartitionTrouble] = ()


class DeadLetters(PartitionedEntries[PartitionDeadLetters]):
    """Searches and changes the dead letters of a queue. See `PartitionDeadLetters` for its errors and for `on_wait`."""

    def __init__(
        self,
        client: Redis,
        layout: ReadLayout,
        *,
        group: str = DEFAULT_GROUP,
        on_wait: Callable[[str], None] = lambda _: None,
        assumed: Layout | None = None,
    ) -> None:
        def part(queue: str, suffix: str) -> PartitionDeadLetters:
            return PartitionDeadLetters(client, queue, group=group, on_wait=on_wait, id_suffix=suffix)

        super().__init__(client, QueueParts(layout, part, assumed=assumed))
        self._waiting = RepeatedCalls(on_wait).call

    async def get(self, entry_id: str) -> DeadLetterEntry | None:
        """The dead letter with this ID, if there is one.

        Raises:
            QueueUnavailable: the partition that may contain it cannot be read.
        """
        reached = await self.reached(lambda part: part.get(entry_id))
        found = next((entry for _, entry in reached.found.values() if entry is not None), None)
        if found is None and reached.missing:
            raise QueueUnavailable(reached.missing[0].text)
        return found

    async def summaries(self, selection: Selection, before: str | None, most: int) -> DeadLetterList:
        """A page of dead letters, the newest first, of the partitions that can be read. See `PartitionDeadLetters.summaries`.

        It may contain fewer of them, because each partition contributes a share of the page, and only those are returned which are
        newer than the rest of every partition.
        """

        async def page(part: PartitionDeadLetters) -> tuple[list[DeadLetterEntry], str | None]:
            return await part.summaries(selection, before, self._parts.share_of(most))

        reached = await self.reached(page)
        pages = [page for _, page in reached.found.values()]
        # Where each partition's page ends, as `(ID`.
        ends = [end for _, end in pages if end is not None]
        if not ends:
            return DeadLetterList(
                _newest_first([entry for entries, _ in pages for entry in entries]), None, reached.missing
            )
        end = max(ends, key=_age_of)
        found = [entry for entries, _ in pages for entry in entries if _age_of(entry.entry_id) >= _age_of(end)]
        return DeadLetterList(_newest_first(found), end, reached.missing)

    async def survey(
        self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> Survey[Mapping[str, str]]:
        """Count the dead letters that match in the partitions that can be read. See `PartitionDeadLetters.survey`.

        It waits while none of them can be read.
        """
        reached = await self._usable()
        reasons, missing, newest, progress = Counter[str](), selection.ids, dict[str, str](), Progress(on_progress)
        for queue, (part, _) in reached.found.items():
            found = await part.survey(selection, on_progress=progress.note)
            progress.end_part()
            reasons.update(found.reasons)
            missing &= found.missing
            newest[queue] = found.newest
        return Survey(reasons, missing, newest, reached.missing)

    async def change(
        self,
        kind: JobKind,
        selection: Selection,
        *,
        newest: Mapping[str, str] | None = None,
        on_progress: Callable[[Change], None] = lambda _: None,
    ) -> Change:
        """Replay or drop the dead letters that match in the partitions that can be used. See `PartitionDeadLetters.change`.

        Args:
            kind: of the change.
            selection: which dead letters.
            newest: the last of them, by the name of the partition's queue. Other partitions are left out. The default is the newest one now.
            on_progress: called with the result so far.
        """
        if newest is None:
            reached = await self._usable()
            total, parts = (
                Change(unavailable=tuple(reached.missing)),
                {each: part for each, (part, _) in reached.found.items()},
            )
        else:
            # A partition that is newer than the survey contains nothing that the operator has seen.
            known = await self._waiting(self.by_queue)
            total, parts = Change(), {queue: part for queue, part in known.items() if queue in newest}
        for queue, part in parts.items():

            def note(done: Change, before: Change = total) -> None:
                on_progress(before + done)

            until = None if newest is None else newest[queue]
            total += await part.change(kind, selection, newest=until, on_progress=note)
        return total

    async def _usable(self) -> Reached[PartitionDeadLetters, int]:
        found: Reached[PartitionDeadLetters, int] = await self._waiting(self.reached, PartitionDeadLetters.count)
        return found


def _newest_first(entries: Sequence[DeadLetterEntry]) -> list[DeadLetterEntry]:
    return sorted(entries, key=lambda entry: _age_of(entry.entry_id), reverse=True)


def _age_of(entry_id: str) -> tuple[int, int]:
    """The ID of an entry, or the position of a page's end, without the suffix of its partition."""
    milliseconds, _, sequence = entry_id.removeprefix("(").partition(":")[0].partition("-")
    return int(milliseconds), int(sequence)
