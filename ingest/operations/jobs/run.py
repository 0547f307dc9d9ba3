"""Runs one job, in a command or in a process of the HTTP API.

The run renews its lease once a second, and records its progress with it. If the process dies, the next process that takes the job continues
where it has ended. A job that is cancelled stops within seconds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis

from ingest.backoff import call_until_available
from ingest.domain.errors import Unavailable, UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.jobs.entries import EntryChanges
from ingest.operations.jobs.export import DeadLetterExport
from ingest.operations.jobs.orders import OpenDecoder, OrderChanges
from ingest.operations.leased import while_renewed
from ingest.store.audit import AuditLog
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

_OF_ORDERS = (JobKind.ENQUEUE, JobKind.REMAP)
RUNNABLE: Collection[JobKind] = tuple(kind for kind in JobKind if kind not in {JobKind.BACKFILL, JobKind.PREVIEW})
"""The kinds of jobs that `JobRun` runs."""

_Changes = EntryChanges | OrderChanges | DeadLetterExport
_T = TypeVar("_T")
_RENEW_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class JobParts:
    """The parts of a run.

    Attributes:
        client: of Redis.
        servers: of the job's source.
        jobs: records the job.
        audit_log: records its changes.
        output: the files of jobs.
        open_decoder: opens the mapping and the transform of the source, to remap orders. None if this process has none.
    """

    client: Redis
    servers: Backends
    jobs: Jobs
    audit_log: AuditLog
    output: JobOutput
    open_decoder: OpenDecoder | None = None


class JobRun:
    """Runs a job whose lease this process holds.

    Args:
        held: the job.
        parts: of the run.
        on_progress: called with the progress after each step.
        on_wait: called with the reason when the run has to wait, once for each reason.

    Attributes:
        progress: so far.
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

    async def run(self) -> JobState:
        """Run the job to its end. When cancelled, the lease is still held, and the caller decides about the job.

        Returns the final state, which is recorded. It is `FAILED` if a server denies access, this process cannot run the job, or
        too many processes have died while they ran it.

        Raises:
            LeaseLost: the job was cancelled, or another process has taken it.
            StoreUnavailable: the audit log is unavailable, and nothing was changed.
        """
        selection = {"job": self._held.id, **self._held.request.selection}
        if self._held.danger:
            return await self._end(JobState.FAILED, self._held.danger)
        if self._held.kind not in RUNNABLE:
            return await self._end(JobState.FAILED, f"this process cannot run jobs of the kind {self._held.kind}")
        changes = self._changes()
        try:
            audit = audited(self._parts.audit_log, self._held.requested_by, self._held.kind.value, selection)
            async with audit as operation:
                try:
                    await while_renewed(self._change(changes), self._renew())
                finally:
                    operation.count = self.progress.done
        except UserError as error:
            return await self._end(JobState.FAILED, str(error))
        await self._end(JobState.DONE)
        await changes.forget()
        return JobState.DONE

    def _changes(self) -> _Changes:
        parts = self._parts
        if self._held.kind is JobKind.EXPORT:
            return DeadLetterExport(
                self._held, parts.client, parts.servers, parts.output, self._available, self._wait_for
            )
        if self._held.kind in _OF_ORDERS:
            return OrderChanges(self._held, parts.servers, parts.open_decoder, self._wait_for)
        return EntryChanges(self._held, parts.client, parts.servers, self._wait_for)

    async def _change(self, changes: _Changes) -> None:
        before = self._held.progress.done
        async with aclosing(changes.changes()) as steps:
            async for progress in steps:
                # An export continues after the last part of its file, and its recorded progress may be further.
                before = min(before, progress.done)
                seconds = time.monotonic() - self._begun
                done = progress.done - before
                self.progress = msgspec.structs.replace(progress, per_second=done / max(0.1, seconds))
                self._problem = None
                self._on_progress(self.progress)
                if (rate := self._held.request.rate) is not None:
                    await asyncio.sleep(done / rate - seconds)

    async def _end(self, state: JobState, error: str | None = None) -> JobState:
        await self._available(self._parts.jobs.end, self._held, state, self.progress, error)
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
