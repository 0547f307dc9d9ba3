"""Runs the waiting jobs of some sources in one process.

A job waits after it was requested over HTTP or in the console, or after its process has died and its lease has expired. If this process
dies, the same happens again, until the job has cost several processes and fails.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ingest.domain.errors import Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.services.jobs.job_search import JobSearch, pause_after
from ingest.store.connections.statements import Fetches
from ingest.store.jobs import Jobs, LeaseLost, waiting_jobs
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.operations.jobs.run import JobParts, JobRun

_log = get_logger("jobs")

# Jobs that run together. Of each source and kind, one runs.
_MOST = 4
# Seconds between two log lines about the progress.
_LOG_EVERY = 30.0
# Seconds to release the lease when the process stops.
_LAST_WAIT = 2.0


class JobRuns:
    """Implements `ingest.flow.ports.FleetPart`.

    Args:
        connection: to PostgreSQL.
        sources: whose jobs are run.
        kinds: of these jobs.
        holder: the name of this process.
        search: finds the waiting jobs of the process.
        parts_of: returns the parts with which a job runs.
        is_drained: whether no further job may begin.
    """

    def __init__(
        self,
        connection: Fetches,
        sources: Collection[str],
        kinds: Collection[JobKind],
        holder: str,
        search: JobSearch,
        parts_of: "Callable[[Job], JobParts]",
        is_drained: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self._sources = sources
        self._kinds = kinds
        self._holder = holder
        self._search = search
        self._parts_of = parts_of
        self._is_drained = is_drained
        self._wanted = search.wanted(sources)
        self._closed = asyncio.Event()
        self._running: dict[tuple[str, JobKind], asyncio.Task[None]] = {}

    def look(self) -> None:
        """Look for waiting jobs now."""
        self._wanted.set()

    async def run(self) -> None:
        """Run waiting jobs until cancelled or closed."""
        async with asyncio.TaskGroup() as tasks:
            while not self._closed.is_set():
                await self._wanted.wait()
                # Before the look, so that a job that is requested during the look is found.
                self._wanted.clear()
                try:
                    await self._take_waiting(tasks)
                except Unavailable as error:
                    self._search.report(error)
                    self._wanted.set()
                    await self._pause(error)
            for task in self._running.values():
                task.cancel()

    def close(self) -> None:
        """See `FleetPart`. The leases of running jobs are released."""
        self._closed.set()
        self._wanted.set()

    async def _take_waiting(self, tasks: asyncio.TaskGroup) -> None:
        if self._is_drained() or len(self._running) >= _MOST:
            return
        for source, kind, job in await waiting_jobs(self._connection, self._sources, self._kinds):
            of = source, kind
            if self._closed.is_set() or len(self._running) >= _MOST:
                return
            if of not in self._running and (held := await Jobs(self._connection, source).take(job, self._holder)):
                task = self._running[of] = tasks.create_task(self._run(held))
                task.add_done_callback(partial(self._ended, of))

    def _ended(self, of: tuple[str, JobKind], _: asyncio.Task[None]) -> None:
        del self._running[of]
        self.look()

    async def _run(self, held: Job) -> None:
        """Run a job to its end, or until it has to wait for another process."""
        jobs, run = Jobs(self._connection, held.source), _LoggedRun(held)
        try:
            state = await run.of(self._parts_of(held)).run()
        except LeaseLost:
            _log.info("job_left", **run.about, done=run.progress.done)
        except Unavailable as error:
            _log.warning("job_waits", **run.about, problem=str(error))
            await self._release(jobs, held)
            await self._pause(error)
        except asyncio.CancelledError:
            await self._release(jobs, held)
            raise
        except Exception as error:  # noqa: BLE001  a bug in one job must not stop the others and the orders of its source
            reason = str(error)
            if not isinstance(error, UserError):
                reason = f"a bug: {type(error).__name__}"
                _log.error("job_broken", job=held.id, kind=held.kind.value, problem=repr(error), exc_info=error)
            with suppress(Unavailable, LeaseLost):
                await jobs.end(held, JobState.FAILED, run.progress, reason)
        else:
            _log.info("job_ended", **run.about, state=state, done=run.progress.done, gone=run.progress.gone)

    async def _release(self, jobs: Jobs, held: Job) -> None:
        with suppress(Unavailable, LeaseLost, TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await jobs.release(held)

    async def _pause(self, error: Unavailable) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_after(error)):
                await self._closed.wait()


class _LoggedRun:
    """Logs the run of a job.

    Attributes:
        about: the job, for the log.
        progress: so far.
    """

    def __init__(self, held: Job) -> None:
        self.about: dict[str, Any] = {"job": held.id, "kind": held.kind.value, "source": held.source}
        self.progress = held.progress
        self._held = held
        self._logged_at = asyncio.get_running_loop().time()
        _log.info("job_begun", **self.about, done=held.progress.done, total=held.request.total)

    def of(self, parts: "JobParts") -> "JobRun":
        """Return the run with these parts."""
        # Workers need these only while a job runs.
        from ingest.operations.jobs.run import JobRun  # noqa: PLC0415

        def wait(reason: str) -> None:
            _log.warning("job_waits", **self.about, problem=reason)

        return JobRun(self._held, parts, on_progress=self._follow, on_wait=wait)

    def _follow(self, progress: JobProgress) -> None:
        self.progress = progress
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            _log.info("job_progress", **self.about, done=progress.done, examined=progress.examined)
