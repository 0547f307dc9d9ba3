"""Starts, cancels and resumes jobs. `run` runs one, in a command, a worker or a process of the HTTP API.

Functions raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
"""

from ingest.domain.errors import UserError
from ingest.domain.operating.jobs import Job, JobKind, JobRequest, JobState, RefetchedRows
from ingest.domain.orders.field_differences import ChangePreview
from ingest.operations.audit import Reader, audited, record_read
from ingest.operations.declared import CANCEL_BACKFILL, CANCEL_JOB, READ_PREVIEW, RESUME_BACKFILL, RESUME_JOB
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs


class ImpossibleChange(UserError):
    """The job cannot be cancelled or resumed in its state."""

    def __init__(self, job: Job, change: str) -> None:
        super().__init__(f"{_name(job)} is {_state(job)}, so it cannot be {change}")


class UnfinishedBackfill(UserError):
    """The source already has an unfinished backfill.

    Attributes:
        job: its ID.
    """

    def __init__(self, unfinished: Job) -> None:
        of_source = f" of {unfinished.source}" if unfinished.source else ""
        number = unfinished.id
        super().__init__(
            f"the backfill {number}{of_source} is {_state(unfinished)}: wait for its end, continue it with `ingest backfill"
            f" resume {number}` if it waits, or end it with `ingest backfill cancel {number}`"
        )
        self.job = number


async def start(jobs: Jobs, request: JobRequest, actor: str, holder: str | None = None) -> Job:
    """Add a job, and its entry in the audit log.

    Args:
        jobs: of the source.
        request: the job.
        actor: who requests it.
        holder: this process, if it runs the job. Otherwise, the job waits for a process.

    Raises:
        UnfinishedBackfill: it is a backfill, and the source already has one.
    """
    if request.kind is JobKind.BACKFILL and (unfinished := await jobs.unfinished_backfill()):
        raise UnfinishedBackfill(unfinished)
    if added := await jobs.add(request, actor, holder):
        return added
    # Another program has added one in the meantime.
    if unfinished := await jobs.unfinished_backfill():
        raise UnfinishedBackfill(unfinished)
    raise UserError("another backfill of this source was started and has ended in the meantime: try again")


async def preview_result(jobs: Jobs, job: Job, reader: Reader | None) -> ChangePreview | None:
    """Return the result of a preview, or None for other jobs. The read is recorded, unless the reader is None."""
    # A preview that ends after the job was read is shown by the next read, so that a job that runs has no result.
    is_done = job.kind is JobKind.PREVIEW and job.state is JobState.DONE
    result = await jobs.result(job.id) if is_done else None
    if result is not None and reader is not None:
        await record_read([jobs.audit_log], reader, READ_PREVIEW, {"id": job.id})
    return result


async def refetched_rows(output: JobOutput, job: Job) -> RefetchedRows | None:
    """Return what became of the rows of orders that a job has enqueued, or None for other jobs."""
    return await output.refetched(job.id) if job.kind is JobKind.ENQUEUE else None


async def cancel(jobs: Jobs, job: Job, actor: str) -> Job:
    """Cancel an unfinished job. Changes that it has made stay.

    Raises:
        ImpossibleChange: it has already ended.
    """
    if not job.is_unfinished:
        raise ImpossibleChange(job, "cancelled")
    async with audited(
        jobs.audit_log, actor, CANCEL_BACKFILL if job.kind is JobKind.BACKFILL else CANCEL_JOB, {"id": job.id}
    ) as operation:
        cancelled = await jobs.cancel(job.id)
        operation.count = int(cancelled is not None)
    if cancelled is None:
        raise ImpossibleChange(await jobs.get(job.id) or job, "cancelled")
    return cancelled


async def resume(jobs: Jobs, job: Job, actor: str, holder: str | None = None) -> Job:
    """Let a cancelled or failed job wait for a process, from where it has ended. A waiting job keeps waiting.

    With a holder, the job is taken by that process.

    Raises:
        ImpossibleChange: it runs, or it is done.
        UnfinishedBackfill: it is a running backfill, or another backfill of the source is unfinished.
        UserError: it is a preview, and the holder is not a worker.
    """
    if job.kind is JobKind.PREVIEW and holder is not None:
        raise UserError(f"the job {job.id} is a preview, which a worker runs: request another preview")
    if job.kind is JobKind.BACKFILL and job.state is JobState.RUNNING:
        raise UnfinishedBackfill(job)
    if job.state in {JobState.DONE, JobState.RUNNING}:
        raise ImpossibleChange(job, "resumed")
    async with audited(
        jobs.audit_log, actor, RESUME_BACKFILL if job.kind is JobKind.BACKFILL else RESUME_JOB, {"id": job.id}
    ) as operation:
        if job.state is not JobState.WAITING:
            resumed = await jobs.reopen(job.id, holder)
        else:
            resumed = job if holder is None else await jobs.take(job.id, holder)
        operation.count = int(resumed is not None)
    if resumed is None:
        if job.kind is JobKind.BACKFILL and (unfinished := await jobs.unfinished_backfill()):
            raise UnfinishedBackfill(unfinished)
        raise ImpossibleChange(await jobs.get(job.id) or job, "resumed")
    return resumed


def _name(job: Job) -> str:
    return f"the {'backfill' if job.kind is JobKind.BACKFILL else 'job'} {job.id}"


def _state(job: Job) -> str:
    return f"running in {job.holder}" if job.state is JobState.RUNNING else job.state.value
