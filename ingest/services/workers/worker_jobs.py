"""Runs the waiting jobs of a source that need a worker: previews need the credential of the external API, and remaps the right to store orders.

A job waits after it was requested over HTTP or in the console, or after its process has died and its lease has expired. The next process
begins a preview again, because it changes nothing, and continues a remap.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from ingest.domain.errors import StoreLocked, StoreTooSlow, Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.flow.deliver.order_requests import OrderRequests
from ingest.flow.followed_controls import SourceControls
from ingest.operations.leased import while_renewed
from ingest.services.workers.job_search import KINDS, SELDOM, JobSearch
from ingest.store.backfills import LeaseLost
from ingest.store.connections.statements import Fetches
from ingest.store.jobs import Jobs, waiting_jobs
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.operations.rebuilding.refetch_preview import RefetchPreview
    from ingest.settings import Settings

_log = get_logger("jobs")

_RENEW_EVERY = 1.0
# Seconds to release the lease when the process stops.
_LAST_WAIT = 2.0


class WorkerJobs:
    """Implements `ingest.flow.ports.FleetPart`.

    Args:
        settings: of the source.
        client: of Redis.
        connection: to PostgreSQL.
        controls: of the source.
        holder: the name of this process.
        search: finds the waiting jobs of the process.
        requests: of orders.
    """

    def __init__(
        self,
        settings: "Settings",
        client: Redis,
        connection: Fetches,
        controls: SourceControls,
        holder: str,
        search: JobSearch,
        requests: OrderRequests,
    ) -> None:
        self._settings = settings
        self._client = client
        self._connection = connection
        self._jobs = Jobs(connection, settings.source)
        self._controls = controls
        self._holder = holder
        self._requests = requests
        self._wanted = search.wanted(settings.source)
        self._closed = asyncio.Event()
        self._problem = ""

    async def run(self) -> None:
        """Run waiting jobs until cancelled or closed."""
        while not self._closed.is_set():
            await self._wanted.wait()
            try:
                if not self._controls.is_drained:
                    await self._run_waiting()
                self._problem = ""
            except Unavailable as error:
                # An outage is logged elsewhere. If access is denied, the operator has to act.
                if isinstance(error, UserError):
                    self._report(str(error))
                if isinstance(error, UserError | StoreLocked):
                    await self._is_closed_within(SELDOM)
            self._wanted.clear()

    def close(self) -> None:
        """See `FleetPart`. The lease of a running job is released."""
        self._closed.set()
        self._wanted.set()

    async def _run_waiting(self) -> None:
        for _, job in await waiting_jobs(self._connection, [self._settings.source], KINDS):
            if not self._closed.is_set() and (held := await self._jobs.take(job, self._holder)):
                await self._run(held)

    async def _run(self, held: Job) -> None:
        run = _Run(held)
        _log.info("job_begun", **run.about, done=held.progress.done, total=held.request.total)
        try:
            state = await self._result(run)
        except LeaseLost:
            _log.info("job_left", **run.about, done=run.progress.done)
        else:
            _log.info("job_ended", **run.about, state=state, done=run.progress.done, gone=run.progress.gone)

    async def _result(self, run: "_Run") -> JobState:
        """Run a job, and return its final state."""
        held = run.held
        try:
            if held.kind is JobKind.REMAP:
                return await self._remap(run)
            if held.danger:
                return await self._fail(run, held.danger)
            found = await while_renewed(self._preview(run), self._renew(run))
            await self._jobs.end_with_result(held, run.progress, found.as_object(), found.shown_orders())
        except (LeaseLost, StoreLocked):
            raise
        except (UserError, StoreTooSlow) as error:
            return await self._fail(run, str(error))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  a bug in one job must not stop the orders of its source
            _log.error("job_broken", job=held.id, kind=held.kind.value, problem=repr(error), exc_info=error)
            return await self._fail(run, f"a bug: {type(error).__name__}")
        except asyncio.CancelledError:
            with suppress(Unavailable, LeaseLost, TimeoutError):
                async with asyncio.timeout(_LAST_WAIT):
                    await self._jobs.release(held)
            raise
        return JobState.DONE

    async def _remap(self, run: "_Run") -> JobState:
        # Workers need these only while a remap runs.
        from ingest.operations.backends import Backends  # noqa: PLC0415
        from ingest.operations.jobs.run import JobParts, JobRun  # noqa: PLC0415
        from ingest.services.order_decoding import open_order_decoder  # noqa: PLC0415
        from ingest.store.audit import AuditLog  # noqa: PLC0415
        from ingest.store.job_output import JobOutput  # noqa: PLC0415

        source = self._settings.source
        parts = JobParts(
            self._client,
            Backends.of(self._settings),
            self._jobs,
            AuditLog(self._connection, source),
            JobOutput(self._connection, source),
            partial(open_order_decoder, self._settings),
        )

        def follow(progress: JobProgress) -> None:
            run.progress = progress

        remap = JobRun(
            run.held,
            parts,
            on_progress=follow,
            on_wait=lambda reason: _log.warning("job_waits", **run.about, problem=reason),
        )
        ending = asyncio.create_task(remap.run())
        closing = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait([ending, closing], return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ending.result()
        finally:
            for task in (ending, closing):
                task.cancel()
            await asyncio.gather(ending, closing, return_exceptions=True)
        await self._jobs.release(run.held)
        raise LeaseLost

    async def _preview(self, run: "_Run") -> "RefetchPreview":
        # Workers need these only while a preview runs.
        from ingest.domain.orders.order_filter import order_filter_of  # noqa: PLC0415
        from ingest.operations.backends import Backends  # noqa: PLC0415
        from ingest.operations.jobs.orders import SAMPLE  # noqa: PLC0415
        from ingest.operations.rebuilding.refetch_preview import preview_refetch  # noqa: PLC0415

        selection = run.held.request.selection
        return await preview_refetch(
            Backends.of(self._settings),
            order_filter_of(selection),
            partial(self._requests.fetch, on_wait=run.wait),
            sample=selection[SAMPLE],
            on_progress=run.fetched,
        )

    async def _renew(self, run: "_Run") -> None:
        logged = ""
        while not await self._is_closed_within(_RENEW_EVERY):
            if run.problem:
                await self._jobs.renew(run.held, run.problem)
            else:
                await self._jobs.record(run.held, run.progress)
            if run.problem and run.problem != logged:
                _log.warning("job_waits", **run.about, problem=run.problem)
            logged = run.problem
        await self._jobs.release(run.held)
        raise LeaseLost

    async def _fail(self, run: "_Run", error: str) -> JobState:
        await self._jobs.end(run.held, JobState.FAILED, run.progress, error)
        return JobState.FAILED

    async def _is_closed_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        return self._closed.is_set()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.error("jobs_unavailable", problem=problem)


class _Run:
    """A job that runs.

    Attributes:
        progress: of a remap, or the orders that a preview has requested.
        problem: why it waits. Empty while it does not.
    """

    def __init__(self, held: Job) -> None:
        self.held = held
        self.progress = held.progress if held.kind is JobKind.REMAP else JobProgress()
        self.problem = ""
        self.about = {"job": held.id, "kind": held.kind.value, "source": held.source}

    def wait(self, reason: str) -> None:
        self.problem = reason

    def fetched(self, count: int, _: int | None) -> None:
        self.progress, self.problem = JobProgress(examined=count), ""
