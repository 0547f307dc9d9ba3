"""Finds, cancels and runs jobs. If the process dies during a run, a process of the HTTP API or `ingest job resume` continues it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from redis.asyncio import Redis

from ingest.cli.invocation import actor, holder, say
from ingest.domain.errors import StoreUnavailable, Unavailable, UserError
from ingest.domain.fetch.listed import OrderList
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.audit import audited_control
from ingest.operations.backends import Backends
from ingest.operations.backfill.changes import Listing
from ingest.operations.declared import DECLARED
from ingest.operations.jobs.orders import OpenDecoder
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs, LeaseLost, find_job, newest_jobs

OnProgress = Callable[[JobProgress], None]
OnWait = Callable[[str], None]

# Seconds to record that a job was cancelled by Ctrl-C.
_LAST_WAIT = 5.0


class NotRecorded(Exception):
    """PostgreSQL cannot record a job right now, and no change was made."""


async def start_and_run(
    servers: Backends, request: Callable[[Redis], Awaitable[JobRequest]], on_progress: OnProgress, on_wait: OnWait
) -> Job:
    """Start a job, and run it to its end. Return it as it has ended.

    Raises:
        NotRecorded: PostgreSQL cannot be used.
    """
    async with open_parts(servers) as parts:
        wanted = await request(parts.client)
        try:
            held = await operations.start(parts.jobs, wanted, actor(), holder())
        except StoreUnavailable as error:
            raise NotRecorded(str(error)) from error
        return await run_held(held, parts, on_progress, on_wait)


async def change_directly(
    servers: Backends, kind: JobKind, ids: Iterable[str], change: Callable[[], Awaitable[int]], on_wait: OnWait
) -> int:
    """Change the entries of some IDs and record the change. Return how many were changed.

    Without PostgreSQL, the change is not recorded. It is made nevertheless, because it needs Redis only.
    """
    selection = {"ids": sorted(ids)}
    async with (
        Pool.open(servers.postgres_dsn, size=1) as pool,
        audited_control(
            AuditLog(pool, servers.source), actor(), DECLARED[kind], selection, on_unrecorded=on_wait
        ) as operation,
    ):
        operation.count = await change()
    return operation.count


@asynccontextmanager
async def open_parts(
    servers: Backends, open_decoder: OpenDecoder | None = None, listed: OrderList | None = None
) -> AsyncIterator[JobParts]:
    """Open the parts of a run, with the mapping and the list of the source if the job needs them."""
    async with Pool.open(servers.postgres_dsn, size=2) as pool, control_client(servers.redis_url) as client:
        jobs, output = Jobs(pool, servers.source), JobOutput(pool, servers.source)
        listing = None if listed is None else Listing(listed, pool)
        yield JobParts(client, servers, jobs, output, open_decoder, listing)


async def run_held(held: Job, parts: JobParts, on_progress: OnProgress, on_wait: OnWait) -> Job:
    """Run a job of this process to its end. Return it as it has ended."""
    run = JobRun(held, parts, on_progress=on_progress, on_wait=on_wait)
    try:
        await run.run()
    except LeaseLost:
        pass  # cancelled, or taken by another process after an outage of PostgreSQL
    except asyncio.CancelledError:
        # After Ctrl-C. If this fails, the lease expires, and another process continues the job.
        with suppress(Unavailable, UserError, TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await operations.cancel(parts.jobs, held, actor())
                name = "backfill" if held.kind is JobKind.BACKFILL else "job"
                say(f"the {name} {held.id} is cancelled: continue it with `ingest {name} resume {held.id}`")
        raise
    if unproven := run.changes.unproven():
        say(f"not proven: {unproven}")
    return await parts.jobs.get(held.id) or held


async def find(sources: Mapping[str, Backends], number: int, kind: JobKind | None = None) -> Job:
    """Find a job, or only a job of this kind.

    Raises:
        UserError: none of the sources has it.
    """
    async with Pool.open(next(iter(sources.values())).postgres_dsn, size=1) as pool:
        found = await find_job(pool, sources.keys(), number)
    if found is None or kind not in {None, found.kind}:
        raise UserError(f"there is no {kind or 'job'} {number}: see `ingest {kind or 'job'} list`")
    return found


async def newest(sources: Mapping[str, Backends], limit: int, kinds: Collection[JobKind] = tuple(JobKind)) -> list[Job]:
    """Return the newest jobs of these sources and kinds."""
    async with Pool.open(next(iter(sources.values())).postgres_dsn, size=1) as pool:
        return await newest_jobs(pool, sources.keys(), limit, None, kinds)


async def cancel_job(sources: Mapping[str, Backends], number: int, kind: JobKind | None = None) -> Job:
    """Cancel a job, and return it. See `find`."""
    job = await find(sources, number, kind)
    async with Pool.open(sources[job.source].postgres_dsn, size=1) as pool:
        return await operations.cancel(Jobs(pool, job.source), job, actor())
