"""The jobs of all sources in a process of the HTTP API, except the kinds that workers run."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from ingest.domain.errors import Unavailable, UserError
from ingest.domain.operating.jobs import Job
from ingest.operations.backends import Backends
from ingest.operations.jobs.run import JobParts
from ingest.services.jobs.job_runs import JobRuns
from ingest.services.jobs.job_search import OF_THE_API, JobSearch
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput, delete_expired_output
from ingest.store.jobs import Jobs

# Seconds between two deletions of expired files.
_DELETE_EVERY = 3600.0


@asynccontextmanager
async def running_jobs(client: Redis, pool: Pool, servers: Mapping[str, Backends]) -> AsyncIterator[JobRuns]:
    """Run waiting jobs while the block runs.

    Args:
        client: of Redis.
        pool: of PostgreSQL.
        servers: of each source, by its name.
    """
    search = JobSearch(pool, OF_THE_API)

    def parts_of(held: Job) -> JobParts:
        source = held.source
        return JobParts(client, servers[source], Jobs(pool, source), JobOutput(pool, source))

    runs = JobRuns(pool, servers.keys(), OF_THE_API, f"{socket.gethostname()}-{os.getpid()}", search, parts_of)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in (search.run(), runs.run(), _delete_expired(pool, search))]
        try:
            yield runs
        finally:
            for task in running:
                task.cancel()


async def _delete_expired(pool: Pool, search: JobSearch) -> None:
    while True:
        try:
            await delete_expired_output(pool)
        except (Unavailable, UserError) as error:
            search.report(error)
        await asyncio.sleep(_DELETE_EVERY)
