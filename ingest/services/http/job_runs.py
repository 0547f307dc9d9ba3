"""Runs the waiting jobs of all sources in a process of the HTTP API.

A job waits after it was requested over HTTP or in the console, or after its process has died and its lease has expired. If this process
dies, the same happens again. Backfills, previews and remaps are run by workers, which have the credentials of the external APIs and the
right to store orders.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis

from ingest.domain.errors import Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobState
from ingest.operations.backends import Backends
from ingest.operations.jobs.run import RUNNABLE, JobParts, JobRun
from ingest.store.audit import AuditLog
from ingest.store.backfills import LeaseLost
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput, delete_expired_output
from ingest.store.jobs import Jobs, waiting_jobs
from ingest.telemetry.logs import get_logger

_log = get_logger("jobs")

_KINDS = tuple(kind for kind in RUNNABLE if kind is not JobKind.REMAP)
# Seconds between two looks for waiting jobs, on average.
_LOOK_EVERY = 5.0
# Seconds between two deletions of expired files.
_DELETE_EVERY = 3600.0
# Jobs that one process runs together.
_MOST = 4
# Seconds to release the lease when the process stops.
_LAST_WAIT = 2.0


@dataclass(slots=True)
class JobRuns:
    """Looks for jobs and runs them.

    Attributes:
        client: of Redis.
        pool: of PostgreSQL.
        servers: of each source, by its name.
        holder: the name of this process.
    """

    client: Redis
    pool: Pool
    servers: Mapping[str, Backends]
    holder: str
    _requested: asyncio.Event = field(default_factory=asyncio.Event)
    _chance: random.Random = field(default_factory=random.Random)
    _problem: str = ""

    def look(self) -> None:
        """Look for waiting jobs now, because this process has added one."""
        self._requested.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run waiting jobs while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.run())
            try:
                yield
            finally:
                running.cancel()

    async def run(self) -> None:
        """Run waiting jobs until cancelled."""
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._delete_expired())
            while True:
                self._requested.clear()
                for held in await self._taken(_MOST - len(running)):
                    task = tasks.create_task(self._run(held))
                    running.add(task)
                    task.add_done_callback(running.discard)
                with suppress(TimeoutError):
                    # Spread, so that the processes do not look at the same time.
                    async with asyncio.timeout(_LOOK_EVERY * self._chance.uniform(0.5, 1.5)):
                        await self._requested.wait()

    async def _taken(self, most: int) -> list[Job]:
        """Take the lease of waiting jobs."""
        taken = list[Job]()
        try:
            for source, job in await waiting_jobs(self.pool, self.servers.keys(), _KINDS) if most > 0 else ():
                if len(taken) < most and (held := await Jobs(self.pool, source).take(job, self.holder)):
                    taken.append(held)
            self._problem = ""
        except (Unavailable, UserError) as error:
            self._report(error)
        return taken

    async def _delete_expired(self) -> None:
        while True:
            try:
                await delete_expired_output(self.pool)
            except (Unavailable, UserError) as error:
                self._report(error)
            await asyncio.sleep(_DELETE_EVERY)

    def _report(self, error: Exception) -> None:
        # An outage is logged elsewhere. If access is denied, or the DSN cannot be used, the operator has to act.
        if isinstance(error, UserError) and str(error) != self._problem:
            self._problem = str(error)
            _log.error("jobs_unavailable", problem=self._problem)

    async def _run(self, held: Job) -> None:
        jobs = Jobs(self.pool, held.source)
        parts = JobParts(
            self.client,
            self.servers[held.source],
            jobs,
            AuditLog(self.pool, held.source),
            JobOutput(self.pool, held.source),
        )
        about = {"job": held.id, "kind": held.kind.value, "source": held.source}
        _log.info("job_begun", **about, done=held.progress.done, total=held.request.total)
        run = JobRun(held, parts, on_wait=lambda reason: _log.warning("job_waits", **about, problem=reason))
        try:
            state = await self._result(run, held, jobs)
        except LeaseLost:
            _log.info("job_left", **about, done=run.progress.done)
        except Unavailable as error:
            # No change was made. Another process takes the job after the lease.
            _log.warning("job_waits", **about, problem=str(error))
        else:
            _log.info("job_ended", **about, state=state, done=run.progress.done, gone=run.progress.gone)

    async def _result(self, run: JobRun, held: Job, jobs: Jobs) -> JobState:
        try:
            return await run.run()
        except (Unavailable, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001  a bug in one job must not stop the process
            _log.error("job_broken", job=held.id, kind=held.kind.value, problem=repr(error), exc_info=error)
            await jobs.end(held, JobState.FAILED, run.progress, f"a bug: {type(error).__name__}")
            return JobState.FAILED
        except asyncio.CancelledError:
            with suppress(Unavailable, LeaseLost, TimeoutError):
                async with asyncio.timeout(_LAST_WAIT):
                    await jobs.release(held)
            raise
