"""A job that kills its own process at a named moment: `python job_victim.py KIND MOMENT PAGE`, settings by environment.

The job is a replay or an export of all dead letters, or a backfill, which strikes when it enqueues this page at the earliest. A job that
waits is continued. It is assembled from the real parts except for one, which dies. The product contains no code for this.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.backfill import BackfillRequest
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations import jobs as operations
from ingest.operations.backends import Backends
from ingest.operations.backfill.changes import Listing
from ingest.operations.backfill.lane import Lane, open_main_lane
from ingest.operations.failed_orders.entries import entries_of
from ingest.operations.jobs.requests import entry_request
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.redis.connection import control_client
from ingest.settings import load_settings
from ingest.settings.source_file import source_settings
from ingest.sources.list_opening import open_order_list
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs, waiting_jobs

KIND, MOMENT, PAGE = JobKind(sys.argv[1]), sys.argv[2], int(sys.argv[3])
# With steps of 50 entries or a page of orders, some are made before the first record and some after it.
_RATE = 100.0


def meets(moment: str) -> None:
    """End by SIGKILL at this moment, without handlers, flushed buffers or messages to servers."""
    if moment == MOMENT:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalJobs(Jobs):
    """Dies around the record of progress, and around the end of the job."""

    async def record(self, held: Job, progress: JobProgress) -> None:
        meets("before_record")
        await super().record(held, progress)
        meets("after_record")

    async def end(
        self, held: Job, state: JobState, progress: JobProgress, error: str | None = None, *result: Any
    ) -> None:
        meets("before_end")
        await super().end(held, state, progress, error, *result)
        meets("after_end")


class MortalOutput(JobOutput):
    """Dies around the second part of the file."""

    async def add(self, held: Job, part: int, text: str, progress: JobProgress) -> None:
        if part:
            meets("before_part")
        await super().add(held, part, text, progress)
        if part:
            meets("after_part")


class MortalLane(Lane):
    """Dies around the enqueueing of a portion."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._portions = 0

    async def occupied(self) -> int:
        return await self._lane.occupied()

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        self._portions += 1
        if self._portions >= PAGE:
            meets("before_enqueue")
        await self._lane.enqueue(orders)
        if self._portions >= PAGE:
            meets("after_enqueue")


@asynccontextmanager
async def mortal_lane(servers: Backends, origin: str) -> AsyncIterator[Lane]:
    async with open_main_lane(servers, origin) as lane:
        yield MortalLane(lane)


async def main() -> None:
    [settings] = source_settings(load_settings()).values()
    servers = Backends.of(settings)
    async with (
        Pool.open(servers.postgres_dsn, size=2) as pool,
        control_client(servers.redis_url) as client,
        AsyncExitStack() as stack,
    ):
        listing = None
        if KIND is JobKind.BACKFILL:
            listed = await stack.enter_async_context(open_order_list(settings, os.environ))
            listing = Listing(listed, pool, mortal_lane)
            now = datetime.now(UTC)
            wanted = BackfillRequest(now - timedelta(days=60), now, _RATE).as_job()
        else:
            dead_letters = entries_of(client, servers, EntryKind.DEAD_LETTERS)
            wanted = await entry_request(dead_letters, KIND, Selection(everything=True), rate=_RATE)
        source = servers.source
        jobs = MortalJobs(pool, source)
        parts = JobParts(client, servers, jobs, MortalOutput(pool, source), listing=listing)
        for _, _, job in await waiting_jobs(pool, [source], [KIND]):
            held = await jobs.take(job, "victim")
            break
        else:
            held = await operations.start(jobs, wanted, "cli:victim", "victim")
        assert held is not None
        await JobRun(held, parts, on_progress=lambda _: meets("after_step")).run()


asyncio.run(main())
