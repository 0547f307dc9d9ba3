"""The forms of jobs and backfills in responses."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest
from ingest.domain.operating.jobs import Job, JobKind, JobState, RefetchedRows
from ingest.domain.orders.field_differences import ChangePreview
from ingest.operations.json_types import Count, Moment, page_of, response_of
from ingest.operations.visibility import EVERYTHING, Visibility

_Id = Annotated[int, Meta(ge=1)]
_Holder = Annotated[str | None, Meta(description="The process that runs it, or has run it last.")]
_Error = Annotated[str | None, Meta(description="The last problem.")]


class ShownJob(msgspec.Struct, frozen=True):
    """A job."""

    id: _Id
    source: str
    kind: JobKind
    state: JobState
    selection: Annotated[dict[str, Any], Meta(description="The selected entries, or the period of a backfill.")]
    total: Annotated[int | None, Meta(description="Entries that matched when the job was requested, if known.")]
    rate: Annotated[float | None, Meta(description="Limit of changes per second.")]
    done: Annotated[Count, Meta(description="Entries that were changed or exported.")]
    gone: Annotated[Count, Meta(description="Entries that had already been changed otherwise.")]
    examined: Annotated[Count, Meta(description="Entries that were read.")]
    per_second: Annotated[float, Meta(description="Changes per second since a process has last taken the job.")]
    requested_by: str
    requested_at: Moment
    holder: _Holder
    started_at: Moment | None
    ended_at: Moment | None
    error: _Error


class JobWithResult(ShownJob, frozen=True):
    """A job with its result."""

    result: Annotated[ChangePreview | None, Meta(description="Of a preview.")]
    rows: Annotated[
        RefetchedRows | None,
        Meta(description="Of the first 100,000 orders of `orders.enqueue`, until 7 days after the end of the job."),
    ]


JobList = page_of("jobs", ShownJob)


class ShownBackfill(msgspec.Struct, frozen=True):
    """A backfill."""

    id: _Id
    source: str
    state: JobState
    since: Moment
    until: Moment
    rate: Annotated[float | None, Meta(description="Limit of enqueued orders per second.")]
    dry_run: Annotated[bool, Meta(description="Whether orders are only counted.")]
    listed: Count
    missing: Annotated[Count, Meta(description="Orders that are not stored.")]
    outdated: Annotated[Count, Meta(description="Orders with an older version stored.")]
    up_to_date: Annotated[Count, Meta(description="Orders that are stored as listed, or were erased.")]
    enqueued: Annotated[Count, Meta(description="Missing and outdated orders, or 0 for a dry run.")]
    requested_by: str
    requested_at: Moment
    holder: _Holder
    started_at: Moment | None
    ended_at: Moment | None
    error: _Error


BackfillList = page_of("backfills", ShownBackfill)


def shown(job: Job, sees: Visibility = EVERYTHING) -> ShownJob:
    """Return the form of a job."""
    return response_of(ShownJob, job, job.request, job.progress, **_masked(job, sees))


def shown_with(
    result: ChangePreview | None, rows: RefetchedRows | None, job: Job, sees: Visibility = EVERYTHING
) -> JobWithResult:
    """Return the form of a job with its result."""
    masked = _masked(job, sees)
    return response_of(JobWithResult, job, job.request, job.progress, result=sees.preview(result), rows=rows, **masked)


def shown_backfill(job: Job) -> ShownBackfill:
    """Return the form of a backfill."""
    request, progress = BackfillRequest.of(job), BackfillProgress.of(job.progress)
    # Orders may be enqueued twice after the list was read from its beginning.
    counts = {"up_to_date": max(0, progress.listed - progress.differing)}
    counts["enqueued"] = 0 if request.dry_run else progress.differing
    return response_of(ShownBackfill, job, request, progress, **counts)


def _masked(job: Job, sees: Visibility) -> dict[str, Any]:
    return {"selection": sees.selection(job.request.selection), "per_second": round(job.progress.per_second, 1)}
