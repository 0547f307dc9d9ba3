"""Starts, cancels and resumes jobs. `run` runs one, in a command or in a process of the HTTP API.

Functions raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
"""

from typing import Any

from ingest.domain.errors import UserError
from ingest.domain.operating.jobs import Job, JobKind, JobRequest, JobState
from ingest.operations.audit import Reader, audited, record_read
from ingest.store.audit import AuditLog
from ingest.store.jobs import Jobs

START, CANCEL, RESUME = "jobs.start", "jobs.cancel", "jobs.resume"
READ, DOWNLOAD = "jobs.read", "jobs.download"


class NoSuchJob(UserError):
    """There is no such job, or it cannot be resumed or cancelled now.

    Attributes:
        exists: whether there is a job with this ID.
    """

    def __init__(self, message: str, *, exists: bool) -> None:
        super().__init__(message)
        self.exists = exists


async def start(jobs: Jobs, audit_log: AuditLog, request: JobRequest, actor: str, holder: str | None = None) -> Job:
    """Add a job. The process that runs it records its changes in the audit log.

    Args:
        jobs: of the source.
        audit_log: of the source.
        request: the job.
        actor: who requests it.
        holder: this process, if it runs the job. Otherwise, the job waits for a process.
    """
    selection = {"kind": request.kind.value, "rate": request.rate, **request.selection}
    async with audited(audit_log, actor, START, selection) as operation:
        added = await jobs.add(request, actor, holder)
        operation.count = 1
    return added


async def described(jobs: Jobs, audit_log: AuditLog, job: Job, reader: Reader) -> dict[str, Any]:
    """Return a job for JSON, with the result of a preview, and record who reads it."""
    return job.as_dict() | {"result": await preview_result(jobs, audit_log, job, reader)}


async def preview_result(jobs: Jobs, audit_log: AuditLog, job: Job, reader: Reader | None) -> dict[str, Any] | None:
    """Return the result of a preview, or None for other jobs. The read is recorded, unless the reader is None."""
    result = await jobs.result(job.id) if job.kind is JobKind.PREVIEW else None
    if result is not None and reader is not None:
        await record_read([audit_log], reader, READ, {"id": job.id})
    return result


async def cancel(jobs: Jobs, audit_log: AuditLog, job: int, actor: str) -> Job:
    """Cancel an unfinished job, including a backfill. Changes that it has made stay.

    Raises:
        NoSuchJob: there is none with this ID, or it has already ended.
    """
    found = await jobs.get(job)
    if found is None or not found.is_unfinished:
        raise _not_possible(job, found, "cancelled")
    async with audited(audit_log, actor, CANCEL, {"id": job}) as operation:
        cancelled = await jobs.cancel(job)
        operation.count = int(cancelled is not None)
    if cancelled is None:
        raise _not_possible(job, await jobs.get(job), "cancelled")
    return cancelled


async def resume(jobs: Jobs, audit_log: AuditLog, job: int, actor: str, holder: str | None = None) -> Job:
    """Let a cancelled or failed job wait for a process, from where it has ended. A waiting job keeps waiting.

    With a holder, the job is taken by that process.

    Raises:
        NoSuchJob: there is none with this ID, it runs, it is done, or it is a backfill. With a holder, or it is a preview.
    """
    found = await jobs.get(job)
    if found is not None and found.kind is JobKind.PREVIEW and holder is not None:
        raise NoSuchJob(f"the job {job} is a preview, which a worker runs: request another preview", exists=True)
    if found is None or found.state in {JobState.DONE, JobState.RUNNING} or found.kind is JobKind.BACKFILL:
        raise _not_possible(job, found, "resumed")
    async with audited(audit_log, actor, RESUME, {"id": job}) as operation:
        if found.state is not JobState.WAITING:
            resumed = await jobs.reopen(job, holder)
        else:
            resumed = found if holder is None else await jobs.take(job, holder)
        operation.count = int(resumed is not None)
    if resumed is None:
        raise _not_possible(job, await jobs.get(job), "resumed")
    return resumed


def _not_possible(job: int, found: Job | None, change: str) -> NoSuchJob:
    if found is None:
        return NoSuchJob(f"there is no job {job}: see `ingest job list`", exists=False)
    if found.kind is JobKind.BACKFILL and change == "resumed":
        return NoSuchJob(f"the job {job} is a backfill: use `ingest backfill resume {job}`", exists=True)
    state = f"running in {found.holder}" if found.state is JobState.RUNNING else found.state.value
    return NoSuchJob(f"the job {job} is {state}, so it cannot be {change}", exists=True)
