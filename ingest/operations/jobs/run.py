"""Runs one job, in a command, a worker or a process of the HTTP API.

The run renews its lease once a second, and records its progress with it. If the process dies, the next process that takes the job continues
where it has ended. A job that is cancelled stops within seconds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from redis.asyncio import Redis

from ingest.backoff import call_until_available
from ingest.domain.errors import Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations.audit import Operation, log_result
from ingest.operations.backends import Backends
from ingest.operations.declared import DECLARED
from ingest.operations.jobs.changes import Changes
from ingest.operations.jobs.orders import OpenDecoder, OrderChanges
from ingest.operations.leased import while_renewed
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

if TYPE_CHECKING:
    from ingest.operations.backfill.changes import Listing
    from ingest.operations.jobs.preview import FetchOrder

_T = TypeVar("_T")
_RENEW_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class JobParts:
    """The parts of a run.

    Attributes:
        client: of Redis.
        servers: of the job's source.
        jobs: records the job.
        output: the files of jobs.
        open_decoder: opens the mapping and the transform of the source, to remap orders. None if this process has none.
        listing: the list of the source, to backfill orders. None if this process has none.
        fetch: requests orders, to preview a fetch. None if this process has no credential.
    """

    client: Redis
    servers: Backends
    jobs: Jobs
    output: JobOutput
    open_decoder: OpenDecoder | None = None
    listing: "Listing | None" = None
    fetch: "FetchOrder | None" = None


class JobRun:
    """Runs a job whose lease this process holds.

    Args:
        held: the job.
        parts: of the run.
        on_progress: called with the progress after each step.
        on_wait: called with the reason when the run has to wait, once for each reason.

    Attributes:
        progress: so far.
        changes: of the job.

    Raises:
        UserError: this process cannot run the job.
    """

    def __init__(
        self,
        held: Job,
        parts: JobParts,
        *,
        on_progress: Callable[[JobProgress], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._held = held
        self._parts = parts
        self._on_progress = on_progress
        self._on_wait = on_wait
        self._problem: str | None = None
        self._begun = time.monotonic()
        self.progress = msgspec.structs.replace(held.progress, per_second=0.0)
        self.changes = self._changes()

    async def run(self) -> JobState:
        """Run the job to its end. When cancelled, the lease is still held, and the caller decides about the job.

        Returns the final state, which is recorded. It is `FAILED` if a server denies access, this process cannot run the job, or
        too many processes have died while they ran it.

        Raises:
            LeaseLost: the job was cancelled, or another process has taken it.
            Unavailable: a server cannot be used, and the job has not ended.
        """
        if self._held.danger:
            return await self._end(JobState.FAILED, self._held.danger)
        try:
            await while_renewed(self._change(), self._renew())
        except UserError as error:
            return await self._end(JobState.FAILED, str(error))
        await self._end(JobState.DONE)
        await self.changes.forget()
        return JobState.DONE

    def _changes(self) -> Changes:
        # Each process imports only the changes of the jobs that it runs.
        held, parts = self._held, self._parts
        match held.kind:
            case JobKind.ENQUEUE | JobKind.REMAP:
                return OrderChanges(
                    held, parts.servers, parts.output, self._available, parts.open_decoder, self._wait_for
                )
            case JobKind.PREVIEW:
                from ingest.operations.jobs.preview import Preview  # noqa: PLC0415

                if parts.fetch is None:
                    raise UserError("only workers request orders for a preview: request another one")
                return Preview(held, parts.servers, parts.fetch, self._wait_for)
            case JobKind.BACKFILL:
                from ingest.operations.backfill.changes import BackfillChanges  # noqa: PLC0415

                if parts.listing is None:
                    raise UserError(f"this process has no list of orders: run `ingest backfill resume {held.id}`")
                return BackfillChanges(held, parts.servers, parts.listing, self._available, self._wait_for)
            case JobKind.EXPORT:
                from ingest.operations.jobs.export import DeadLetterExport  # noqa: PLC0415

                return DeadLetterExport(
                    held, parts.client, parts.servers, parts.output, self._available, self._wait_for
                )
            case _:
                from ingest.operations.jobs.entries import EntryChanges  # noqa: PLC0415

                return EntryChanges(held, parts.client, parts.servers, self._wait_for)

    async def _change(self) -> None:
        before = self._held.progress.done
        async with aclosing(self.changes.changes()) as steps:
            async for progress in steps:
                # An export continues after the last part of its file, and its recorded progress may be further.
                before = min(before, progress.done)
                seconds = time.monotonic() - self._begun
                done = progress.done - before
                is_new = progress.position != self.progress.position
                self.progress = msgspec.structs.replace(progress, per_second=done / max(0.1, seconds))
                self._problem = None
                if is_new and self.changes.is_recorded_at_once:
                    await self._available(self._parts.jobs.record, self._held, self.progress)
                self._on_progress(self.progress)
                if (rate := self._held.request.rate) is not None:
                    await asyncio.sleep(done / rate - seconds)

    async def _end(self, state: JobState, error: str | None = None) -> JobState:
        result = self.changes.result() if state is JobState.DONE else (None, ())
        await self._available(self._parts.jobs.end, self._held, state, self.progress, error, *result)
        job = self._held
        selection = {"job": job.id, "rate": job.request.rate, **job.request.selection}
        entry = Operation(job.requested_by, DECLARED[job.kind.action], selection, self.progress.done, job.operation)
        log_result(job.source, entry, error)
        return state

    async def _renew(self) -> None:
        is_unavailable = False
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            try:
                if self._problem is None:
                    await self._parts.jobs.record(self._held, self.progress)
                else:
                    await self._parts.jobs.renew(self._held, self._problem)
                is_unavailable = False
            except Unavailable as error:
                # The changes continue, because an entry is changed once even if another process takes the job.
                if not is_unavailable:
                    self._on_wait(f"{error.server} is unavailable: {error}")
                is_unavailable = True

    async def _available(self, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        return await call_until_available(
            call,
            *arguments,
            passes=lambda error: isinstance(error, Unavailable) and not isinstance(error, UserError),
            on_failure=lambda error: self._wait_for(f"{getattr(error, 'server', 'a server')} is unavailable: {error}"),
        )

    def _wait_for(self, reason: str) -> None:
        if reason != self._problem:
            self._problem = reason
            self._on_wait(reason)
