"""Starts, lists, cancels and resumes backfills. `run` runs one, in a command or in a worker process.

Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
"""

from collections.abc import Mapping
from typing import Any

from ingest.domain.errors import UserError
from ingest.domain.operating.backfill import Backfill, BackfillRequest, JobState
from ingest.operations.audit import audited
from ingest.store.audit import AuditLog
from ingest.store.backfills import Backfills

START, CANCEL, RESUME = "backfills.start", "backfills.cancel", "backfills.resume"


class UnfinishedBackfill(UserError):
    """The source already has an unfinished backfill.

    Attributes:
        job: its ID.
    """

    def __init__(self, unfinished: Backfill) -> None:
        of_source = f" of {unfinished.source}" if unfinished.source else ""
        state = f"running in {unfinished.holder}" if unfinished.state is JobState.RUNNING else unfinished.state.value
        super().__init__(
            f"the backfill {unfinished.id}{of_source} is {state}: wait for its end, continue it with `ingest backfill"
            f" resume {unfinished.id}` if it waits, or end it with `ingest backfill cancel {unfinished.id}`"
        )
        self.job = unfinished.id


class NoSuchBackfill(UserError):
    """There is no such backfill, or it cannot be resumed or cancelled."""


async def start(
    backfills: Backfills, audit_log: AuditLog, request: BackfillRequest, actor: str, holder: str | None = None
) -> Backfill:
    """Add a backfill, which the process `holder` runs. Without a holder, it waits for a process.

    Raises:
        UnfinishedBackfill: the source already has one.
    """
    if unfinished := await backfills.unfinished():
        raise UnfinishedBackfill(unfinished)
    async with audited(audit_log, actor, START, _selection(request)) as operation:
        added = await backfills.add(request, actor, holder)
        operation.count = int(added is not None)
    if added is not None:
        return added
    # Another program has added one in the meantime.
    raise await _reason(backfills, None)


async def cancel(backfills: Backfills, audit_log: AuditLog, job: int, actor: str) -> Backfill:
    """Cancel a backfill. Orders that are already queued stay queued.

    Raises:
        NoSuchBackfill: there is none with this ID, or it has already ended.
    """
    found = await backfills.get(job)
    if found is None or not found.is_unfinished:
        raise _not_possible(job, found, "cancelled")
    async with audited(audit_log, actor, CANCEL, {"id": job}) as operation:
        cancelled = await backfills.cancel(job)
        operation.count = int(cancelled is not None)
    if cancelled is None:
        raise _not_possible(job, await backfills.get(job), "cancelled")
    return cancelled


async def resume(
    backfills: Backfills, audit_log: AuditLog, job: int, actor: str, holder: str | None = None
) -> Backfill:
    """Let the process `holder` run a cancelled, failed or waiting backfill from where it has ended.

    Without a holder, it waits for a process.

    Raises:
        NoSuchBackfill: there is none with this ID, or it is done.
        UnfinishedBackfill: it runs in another process, or another backfill of the source is unfinished.
    """
    found = await backfills.get(job)
    if found is None or found.state is JobState.DONE:
        raise _not_possible(job, found, "resumed")
    if found.state is JobState.RUNNING:
        raise UnfinishedBackfill(found)
    async with audited(audit_log, actor, RESUME, {"id": job}) as operation:
        if found.state is not JobState.WAITING:
            reopened = await backfills.reopen(job, holder)
        else:
            reopened = found if holder is None else await backfills.take(job, holder)
        operation.count = int(reopened is not None)
    if reopened is None:
        raise await _reason(backfills, job)
    return reopened


async def _reason(backfills: Backfills, job: int | None) -> UserError:
    """Return the reason why a backfill could not be added, reopened or taken."""
    if unfinished := await backfills.unfinished():
        return UnfinishedBackfill(unfinished)
    if job is None:
        return UserError("another backfill of this source was started and has ended in the meantime: try again")
    return _not_possible(job, await backfills.get(job), "resumed")


def _not_possible(job: int, found: Backfill | None, change: str) -> NoSuchBackfill:
    if found is None:
        return NoSuchBackfill(f"there is no backfill {job}")
    return NoSuchBackfill(f"the backfill {job} is {found.state.value}, so it cannot be {change}")


def _selection(request: BackfillRequest) -> Mapping[str, Any]:
    return {
        "since": request.since.isoformat(),
        "until": request.until.isoformat(),
        "rate": request.rate,
        "dry_run": request.dry_run,
    }
