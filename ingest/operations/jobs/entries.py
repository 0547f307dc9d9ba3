"""Changes the dead letters or retries that a job selects, partition by partition.

    page of summaries ──▶ those that match ──▶ one step in Redis, which changes them and records that

The position of a job is, for each partition, the record of its last step. If the process dies here, the next one continues from there.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from redis.asyncio import Redis

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import Job, JobProgress
from ingest.domain.operating.selection_json import recorded_selection
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.entries import NEWEST, UNTIL_MS
from ingest.operations.jobs.changes import Changes
from ingest.queue.operate.failed.dead_letter_pages import together
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.failed.partition_retries import PartitionRetries, Position, RetryPage
from ingest.queue.operate.failed.retries import Retries
from ingest.queue.operate.job_steps import MOST_IN_STEP, JobSteps, StepRecord
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.repeated_calls import RepeatedCalls

_T = TypeVar("_T")


@dataclass(slots=True)
class EntryChanges(Changes):
    """The changes of one job.

    Args:
        job: whose lease this process holds.
        client: of Redis.
        servers: of its source.
        on_wait: called with each reason for waiting.
    """

    job: Job
    client: Redis
    servers: Backends
    on_wait: Callable[[str], None]
    _examined: int = 0
    _records: dict[str, StepRecord] = field(default_factory=dict)

    async def changes(self) -> AsyncGenerator[JobProgress, None]:
        """See `Changes`."""
        self._examined = self.job.progress.examined
        layout = layout_reader(self.client, self.servers.stream)
        waiting = RepeatedCalls(self.on_wait).call
        if self.job.kind.entries is EntryKind.DEAD_LETTERS:
            dead_letters = DeadLetters(self.client, layout, group=self.servers.group, on_wait=self.on_wait)
            parts: Mapping[str, Any] = await waiting(dead_letters.by_queue)
            changes_in: Callable[..., AsyncGenerator[JobProgress, None]] = self._dead_letters_of
        else:
            parts = await waiting(Retries(self.client, layout, self.servers.group).by_queue)
            changes_in = self._retries_of
        # Others were added since the request, or could not be read by its preview, which has named them.
        parts = {queue: part for queue, part in parts.items() if queue in self._ends}
        for queue in parts:
            known = _known(self.job.progress.position, queue)
            self._records[queue] = await self._steps_in(queue).begin(known)
        # The last step before a crash may have been recorded by Redis only.
        yield self._progress()
        for queue, part in parts.items():
            async with aclosing(changes_in(queue, part, self._steps_in(queue))) as changes:
                async for progress in changes:
                    yield progress

    async def forget(self) -> None:
        """Delete the records of the steps."""
        for queue in self._records:
            await self._steps_in(queue).forget()

    def _steps_in(self, queue: str) -> JobSteps:
        return JobSteps(self.client, queue, self.job.id, group=self.servers.group, on_wait=self.on_wait)

    @property
    def _ends(self) -> Mapping[str, Any]:
        """Of each partition, where the job ends."""
        return self.job.request.selection[NEWEST if self.job.kind.entries is EntryKind.DEAD_LETTERS else UNTIL_MS]  # type: ignore[no-any-return]

    @property
    def _most(self) -> int:
        """The most entries of a step, so that a step contains at most one second of a limited rate."""
        rate = self.job.request.rate
        return MOST_IN_STEP if rate is None else max(1, min(MOST_IN_STEP, int(rate)))

    async def _dead_letters_of(
        self, queue: str, part: PartitionDeadLetters, steps: JobSteps
    ) -> AsyncGenerator[JobProgress, None]:
        selection = recorded_selection(self.job.request.selection)
        newest = self._ends[queue]
        # Dead letters that are named by their IDs are looked up, so the others are not in order.
        after = "" if selection.ids else self._records[queue].after
        pages = part.oldest_summaries(selection, after=after, newest=newest)
        async with aclosing(_one_ahead(pages)) as ahead:
            async for page in ahead:
                for rows in together(page.rows, self._most):
                    ids = [entry.entry_id.removesuffix(part.id_suffix) for entry, _ in rows]
                    self._records[queue] = await steps.change(self.job.kind, ids, ids[-1])
                    yield self._progress()
                self._examined += page.examined
                yield self._progress()

    async def _retries_of(
        self, queue: str, part: PartitionRetries, steps: JobSteps
    ) -> AsyncGenerator[JobProgress, None]:
        selection = recorded_selection(self.job.request.selection)
        until = self._ends[queue]
        pages = _retry_pages(
            part.page, _position(self._records[queue].after), selection.filter.unlisted_fields, self.on_wait
        )
        async with aclosing(_one_ahead(pages)) as ahead:
            async for page in ahead:
                matching = [
                    (entry.name, position)
                    for entry, position in zip(page.entries, page.positions, strict=True)
                    # An order whose attempt fails again waits in a new entry.
                    if _entry_ms(entry.name) <= until and selection.matches(entry)
                ]
                for some in _portions(matching, self._most):
                    names, after = [name for name, _ in some], _position_text(some[-1][1])
                    self._records[queue] = await steps.change(self.job.kind, names, after, self.job.requested_by)
                    yield self._progress()
                self._examined += len(page.entries)
                yield self._progress()

    def _progress(self) -> JobProgress:
        records = self._records.values()
        return JobProgress(
            sum(record.done for record in records),
            sum(record.gone for record in records),
            self._examined,
            {queue: asdict(record) for queue, record in self._records.items()},
        )


def _known(position: Mapping[str, Any], queue: str) -> StepRecord:
    return StepRecord(**position[queue]) if queue in position else StepRecord()


async def _one_ahead(pages: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """Yield the same, while the next one is being read, so that Redis and this process work at the same time."""
    async with aclosing(pages):
        reading = asyncio.ensure_future(_next(pages))
        try:
            while (page := await reading) is not None:
                reading = asyncio.ensure_future(_next(pages))
                yield page
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _next(pages: AsyncGenerator[_T, None]) -> _T | None:
    return await anext(pages, None)


async def _retry_pages(
    read: Callable[..., Awaitable[RetryPage]], after: Position, fields: frozenset[bytes], on_wait: Callable[[str], None]
) -> AsyncGenerator[RetryPage, None]:
    waiting, position = RepeatedCalls(on_wait).call, after
    while True:
        page: RetryPage = await waiting(read, position, 2 * MOST_IN_STEP, fields)
        yield page
        if page.next is None:
            return
        position = page.next


def _portions(matching: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    for at in range(0, len(matching), most):
        yield matching[at : at + most]


def _entry_ms(name: bytes) -> int:
    """The time in the ID of the entry that failed, which is the name of a retry. Another program may have chosen any name."""
    milliseconds = name.partition(b"-")[0]
    return int(milliseconds) if milliseconds.isdigit() and len(milliseconds) <= 20 else 0


def _position_text(position: Position) -> str:
    # Names are bytes, and PostgreSQL does not store a zero byte.
    return f"{position.due} {position.name.encode('latin-1').hex()}"


def _position(text: str) -> Position:
    if not text:
        return Position()
    due, _, name = text.partition(" ")
    return Position(due, bytes.fromhex(name).decode("latin-1"))
