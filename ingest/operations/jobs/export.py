"""Writes the dead letters that a job selects to the job's file, partition by partition.

    page of dead letters ──▶ lines ──▶ compressed part of the file, with the progress

The progress of the last part is the position of the job. If the process dies here, the next one continues from there. The progress that is
recorded in the table `jobs` is only shown.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from ingest.domain.operating.jobs import Job, JobProgress
from ingest.domain.operating.selection_json import recorded_selection
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.dead_letter_export import head_of, lines_of
from ingest.operations.failed_orders.entries import NEWEST
from ingest.operations.jobs.changes import Changes
from ingest.queue.operate.failed.dead_letter_pages import PAGE
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.repeated_calls import RepeatedCalls
from ingest.store.job_output import JobOutput

FORMAT = "format"
"""In the selection of an export: the format of the file."""

# Characters of a part, and seconds after which a smaller part is added. A process that replaces a killed one reads at most one part again.
_MOST_CHARACTERS = 512 * 1024
_MOST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DeadLetterExport(Changes):
    """The export of one job.

    Attributes:
        job: whose lease this process holds.
        client: of Redis.
        servers: of its source.
        output: the files of its source.
        available: repeats a call until PostgreSQL is available.
        on_wait: called with each reason for waiting for Redis.
    """

    job: Job
    client: Redis
    servers: Backends
    output: JobOutput
    available: Callable[..., Awaitable[Any]]
    on_wait: Callable[[str], None]

    async def changes(self) -> AsyncGenerator[JobProgress, None]:
        """See `Changes`. A step is a page."""
        parts, progress = await self.available(self.output.parts, self.job.id)
        yield progress
        texts = [] if parts else [head_of(self.job.request.selection[FORMAT])]
        added_at = time.monotonic()
        async with aclosing(self._pages(progress)) as pages:
            async for text, so_far in pages:
                texts.append(text)
                progress = so_far
                if sum(map(len, texts)) > _MOST_CHARACTERS or time.monotonic() - added_at > _MOST_SECONDS:
                    await self.available(self.output.add, self.job, parts, "".join(texts), progress)
                    parts, texts, added_at = parts + 1, [], time.monotonic()
                yield progress
        # A file without dead letters is one empty part.
        if texts:
            await self.available(self.output.add, self.job, parts, "".join(texts), progress)

    async def _pages(self, progress: JobProgress) -> AsyncGenerator[tuple[str, JobProgress], None]:
        """The lines of each further page, and the progress with them."""
        request = self.job.request
        layout = layout_reader(self.client, self.servers.stream)
        dead_letters = DeadLetters(self.client, layout, group=self.servers.group, on_wait=self.on_wait)
        most = PAGE if request.rate is None else max(1, min(PAGE, int(request.rate)))
        parts = await RepeatedCalls(self.on_wait).call(dead_letters.by_queue)
        ends = request.selection[NEWEST]
        for queue, part in [(queue, part) for queue, part in parts.items() if queue in ends]:
            pages = part.oldest_whole(
                recorded_selection(request.selection),
                after=progress.position.get(queue, ""),
                newest=ends[queue],
                most=most,
            )
            async with aclosing(pages):
                async for page in pages:
                    progress = JobProgress(
                        progress.done + len(page.rows),
                        examined=progress.examined + page.examined,
                        position={**progress.position, queue: page.last},
                    )
                    yield lines_of(page.entries, self.job.source, request.selection[FORMAT]), progress
