"""Runs a job in this process, with its progress. If the process dies, a process of the HTTP API or `ingest job resume` continues it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from redis.asyncio import Redis

from ingest.cli.invocation import actor, holder, say
from ingest.domain.errors import StoreUnavailable, Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.jobs.orders import OpenDecoder
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.redis.connection import control_client
from ingest.store.audit import AuditLog
from ingest.store.backfills import LeaseLost
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

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
    async with _open(servers) as parts:
        wanted = await request(parts.client)
        try:
            held = await operations.start(parts.jobs, parts.audit_log, wanted, actor(), holder())
        except StoreUnavailable as error:
            raise NotRecorded(str(error)) from error
        return await _run(held, parts, on_progress, on_wait)


async def resume_and_run(
    servers: Backends, job: int, on_progress: OnProgress, on_wait: OnWait, open_decoder: OpenDecoder | None = None
) -> Job:
    """Resume a job, and run it to its end. Return it as it has ended."""
    async with _open(servers, open_decoder) as parts:
        held = await operations.resume(parts.jobs, parts.audit_log, job, actor(), holder())
        return await _run(held, parts, on_progress, on_wait)


async def change_directly(
    servers: Backends, kind: JobKind, ids: Iterable[str], change: Callable[[], Awaitable[int]], on_wait: OnWait
) -> int:
    """Change the entries of some IDs and record the change. Return how many were changed.

    Without PostgreSQL, the change is not recorded. It is made nevertheless, because it needs Redis only.
    """
    async with AsyncExitStack() as stack:
        try:
            pool = await stack.enter_async_context(Pool.open(servers.postgres_dsn, size=1))
            selection = {"ids": sorted(ids)}
            audit = audited(AuditLog(pool, servers.source), actor(), kind.value, selection)
            operation = await stack.enter_async_context(audit)
        except StoreUnavailable as error:
            on_wait(f"PostgreSQL is unavailable, so the audit log does not record this change: {error}")
            return await change()
        operation.count = await change()
        return operation.count


@asynccontextmanager
async def _open(servers: Backends, open_decoder: OpenDecoder | None = None) -> AsyncIterator[JobParts]:
    async with Pool.open(servers.postgres_dsn, size=2) as pool, control_client(servers.redis_url) as client:
        source = servers.source
        jobs, audit_log, output = Jobs(pool, source), AuditLog(pool, source), JobOutput(pool, source)
        yield JobParts(client, servers, jobs, audit_log, output, open_decoder)


async def _run(held: Job, parts: JobParts, on_progress: OnProgress, on_wait: OnWait) -> Job:
    try:
        await JobRun(held, parts, on_progress=on_progress, on_wait=on_wait).run()
    except LeaseLost:
        pass  # cancelled, or taken by another process after an outage of PostgreSQL
    except asyncio.CancelledError:
        # After Ctrl-C. If this fails, the lease expires, and another process continues the job.
        with suppress(Unavailable, UserError, TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await operations.cancel(parts.jobs, parts.audit_log, held.id, actor())
                say(f"the job {held.id} is cancelled: continue it with `ingest job resume {held.id}`")
        raise
    return await parts.jobs.get(held.id) or held
