"""The dead letters or the retries of one source, which are listed, counted and changed in the same way.

Methods raise `QueueUnavailable` when Redis cannot be used right now, or wait for it, if dead letters were opened with `on_wait`. If the
process dies here, each entry is either moved or untouched.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from redis.asyncio import Redis

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import FailedEntry, Selection
from ingest.domain.operating.jobs import JobKind
from ingest.domain.partitions import Layout
from ingest.operations.backends import Backends
from ingest.queue.operate.failed.dead_letter_pages import PAGE as DEAD_LETTERS_IN_STEP
from ingest.queue.operate.failed.dead_letter_pages import is_entry_id
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import Change, Survey
from ingest.queue.operate.failed.partition_retries import PAGE as RETRIES_IN_STEP
from ingest.queue.operate.failed.partition_retries import Position
from ingest.queue.operate.failed.retries import Retries, TotalRetrySurvey
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.repeated_calls import refuse_to_wait
from ingest.queue.redis.connection import control_client

NEWEST = "newest"
"""In the selection of dead letters: the newest one of each partition that belongs to the job, by the name of the partition's queue."""
UNTIL_MS = "until_ms"
"""In the selection of retries: the time of the request in Unix milliseconds, by the clock of each partition's server. Newer entries do
not belong to the job, such as retries of orders whose attempt has failed again."""

OnExamined = Callable[[int, int | None], None]
"""Called with the number of examined entries and their total, if it is known."""

_LONGEST_NAME = 400


def _ignore(*_: object) -> None:
    pass


class EntryPage(NamedTuple):
    """A page of a list.

    Attributes:
        entries: those that match.
        next: where the next page begins, or None after the last one.
        missing: partitions that cannot be read.
    """

    entries: Sequence[FailedEntry]
    next: Any
    missing: Sequence[PartitionTrouble]


@dataclass(frozen=True, slots=True)
class DeadLetterEntries:
    """The dead letters, the newest first.

    Attributes:
        cursor: the type of the value in the cursor of a page.
        step: entries that one step of a change contains.
    """

    queue: DeadLetters
    cursor: ClassVar[Any] = str
    step: ClassVar[int] = DEAD_LETTERS_IN_STEP

    def position(self, cursor: str) -> str:
        """Return the position in a cursor.

        Raises:
            ValueError: no page has ended there.
        """
        if not is_entry_id(cursor.removeprefix("(")):
            raise ValueError(cursor)
        return cursor

    async def page(self, selection: Selection, after: str | None, most: int) -> EntryPage:
        """Return matches among about `most` examined entries, without documents and unknown fields."""
        return EntryPage(*await self.queue.summaries(selection, after, most))

    async def survey(self, selection: Selection, *, on_progress: OnExamined = _ignore) -> Survey[Mapping[str, str]]:
        """Count the entries that match, by reason."""
        return await self.queue.survey(selection, on_progress=lambda examined: on_progress(examined, None))

    async def change(
        self,
        kind: JobKind,
        selection: Selection,
        found: Survey[Mapping[str, str]] | None = None,
        *,
        actor: str,
        on_progress: Callable[[Change], None] = _ignore,
    ) -> Change:
        """Replay or drop the entries that match, and that a survey has found if there was one."""
        del actor
        newest = None if found is None else found.newest
        return await self.queue.change(kind, selection, newest=newest, on_progress=on_progress)

    async def bounds(self, newest: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the part of a job's selection that excludes entries that are added later, or after the `newest` of a survey.

        A job without a survey concerns all partitions, so each of them has to be available.
        """
        if newest is None:
            newest = {queue: await part.newest() for queue, part in (await self.queue.by_queue()).items()}
        return {NEWEST: dict(newest)}


@dataclass(frozen=True, slots=True)
class RetryEntries:
    """The retries, the soonest first. See `DeadLetterEntries`."""

    queue: Retries
    cursor: ClassVar[Any] = tuple[str, str]
    step: ClassVar[int] = RETRIES_IN_STEP

    def position(self, cursor: tuple[str, str]) -> Position:
        """Return the position in a cursor."""
        position = Position(*cursor)
        if not position.is_valid or len(position.name) > _LONGEST_NAME:
            raise ValueError(cursor)
        return position

    async def page(self, selection: Selection, after: Position | None, most: int) -> EntryPage:
        """Return matches."""
        page = await self.queue.page(after or Position(), most, selection.filter.unlisted_fields)
        return EntryPage([entry for entry in page.entries if selection.matches(entry)], page.next, page.missing)

    async def survey(self, selection: Selection, *, on_progress: OnExamined = _ignore) -> TotalRetrySurvey:
        """Find the entries that match."""
        total = await self.queue.count()
        return await self.queue.survey(selection, on_progress=lambda examined: on_progress(examined, total))

    async def change(
        self,
        kind: JobKind,
        selection: Selection,
        found: TotalRetrySurvey | None = None,
        *,
        actor: str,
        on_progress: Callable[[Change], None] = _ignore,
    ) -> Change:
        """Let the entries be due now, or move them to the dead letters, which name the actor as their worker."""
        return await self.queue.change(kind, found or selection, actor, on_progress=on_progress)

    async def bounds(self, newest: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return the times of the servers as that part."""
        if newest is not None:
            return {UNTIL_MS: {queue: int(entry_id.partition("-")[0]) for queue, entry_id in newest.items()}}
        return {UNTIL_MS: {queue: await part.server_ms() for queue, part in (await self.queue.by_queue()).items()}}


FailedEntries = DeadLetterEntries | RetryEntries


def dead_letters_of(client: Redis, backends: Backends, on_wait: Callable[[str], None] = refuse_to_wait) -> DeadLetters:
    """Return the dead letters of a source, in the configured partitions while their record cannot be read."""
    layout, assumed = layout_reader(client, backends.stream), Layout(backends.stream, backends.partitions)
    return DeadLetters(client, layout, group=backends.group, on_wait=on_wait, assumed=assumed)


def retries_of(client: Redis, backends: Backends) -> Retries:
    """Return the retries of a source. See `dead_letters_of`."""
    layout, assumed = layout_reader(client, backends.stream), Layout(backends.stream, backends.partitions)
    return Retries(client, layout, backends.group, assumed)


def entries_of(
    client: Redis, backends: Backends, kind: EntryKind, on_wait: Callable[[str], None] = refuse_to_wait
) -> FailedEntries:
    """Return the entries of one kind. Dead letters wait for Redis if `on_wait` returns."""
    if kind is EntryKind.RETRIES:
        return RetryEntries(retries_of(client, backends))
    return DeadLetterEntries(dead_letters_of(client, backends, on_wait))


@asynccontextmanager
async def open_entries(
    backends: Backends, kind: EntryKind, on_wait: Callable[[str], None] = refuse_to_wait
) -> AsyncIterator[FailedEntries]:
    """As `entries_of`, with their own connection."""
    async with control_client(backends.redis_url) as client:
        yield entries_of(client, backends, kind, on_wait)
