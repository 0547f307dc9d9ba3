"""A replay or export of all dead letters that kills its own process at a named moment: `python job_victim.py KIND MOMENT`, settings by
environment.

It is assembled from the real parts except for one, which dies. The product contains no code for this.
"""

import asyncio
import os
import signal
import sys

from ingest.domain.deliveries.dead_letter import Selection
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations import jobs as operations
from ingest.operations.backends import Backends
from ingest.operations.jobs.requests import dead_letter_request, export_request
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import control_client
from ingest.settings import load_settings
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

KIND, MOMENT = JobKind(sys.argv[1]), sys.argv[2]
# With steps of 50 entries, some are made before the first record and some after it.
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

    async def end(self, held: Job, state: JobState, progress: JobProgress, error: str | None = None) -> None:
        meets("before_end")
        await super().end(held, state, progress, error)
        meets("after_end")


class MortalOutput(JobOutput):
    """Dies around the second part of the file."""

    async def add(self, held: Job, part: int, text: str, progress: JobProgress) -> None:
        if part:
            meets("before_part")
        await super().add(held, part, text, progress)
        if part:
            meets("after_part")


async def main() -> None:
    servers = Backends.of(load_settings())
    async with Pool.open(servers.postgres_dsn, size=2) as pool, control_client(servers.redis_url) as client:
        dead_letters = DeadLetters(client, layout_reader(client, servers.stream), group=servers.group)
        everything = Selection(everything=True)
        if KIND is JobKind.EXPORT:
            wanted = await export_request(dead_letters, everything, "jsonl", rate=_RATE)
        else:
            wanted = await dead_letter_request(dead_letters, KIND, everything, rate=_RATE)
        parts = JobParts(client, servers, MortalJobs(pool), AuditLog(pool), MortalOutput(pool))
        held = await operations.start(parts.jobs, parts.audit_log, wanted, "cli:victim", "victim")
        await JobRun(held, parts, on_progress=lambda _: meets("after_step")).run()


asyncio.run(main())
