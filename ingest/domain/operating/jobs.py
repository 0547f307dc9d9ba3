"""A job: a change of many entries or orders, which continues after the process that runs it has died."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.source_name import UNNAMED

OUTPUT_KEPT = timedelta(days=7)
"""How long the file of a job is kept after its end."""
# Processes that may die or stall while they run a job. It may have killed them.
_MOST_EXPIRED_LEASES = 5


class JobState(StrEnum):
    """The state of a job. A waiting job is run by the next process that looks for jobs."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobKind(StrEnum):
    """The change that a job makes, named as in the audit log. A preview changes nothing."""

    BACKFILL = "backfill"
    REPLAY = "dead_letters.replay"
    DROP = "dead_letters.drop"
    EXPORT = "dead_letters.export"
    RUN_NOW = "retries.run_now"
    DEAD_LETTER = "retries.dead_letter"
    ENQUEUE = "orders.enqueue"
    REMAP = "orders.remap"
    PREVIEW = "orders.preview"

    @property
    def entries(self) -> EntryKind | None:
        """The kind of the entries that the job selects, if it selects entries."""
        return next((kind for kind in EntryKind if self.value.startswith(f"{kind}.")), None)

    @property
    def action(self) -> str:
        """The name of the operation that starts such a job, which is also the action in the audit log."""
        return "backfills.start" if self is JobKind.BACKFILL else self.value

    @property
    def path(self) -> str:
        """The last part of the paths of its route and its page."""
        return self.value.partition(".")[2].replace("_", "-")


class JobRequest(msgspec.Struct, frozen=True):
    """A new job.

    Attributes:
        kind: of the change.
        selection: the entries, the orders, or the period, as JSON values.
        total: how many match, if known.
        rate: limit of changes per second, or None.
    """

    kind: JobKind
    selection: Mapping[str, Any]
    total: int | None = None
    rate: float | None = None


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job has come.

    Attributes:
        done: entries or orders that were changed.
        gone: entries that another operator or a worker had changed before.
        examined: entries or orders that were read, including those that do not match. In a preview, orders that were fetched. In a
            backfill, orders that were listed.
        position: where the job continues, in a form that depends on its kind. Empty at the beginning.
        per_second: changes per second since the process has taken the job.
    """

    done: int = 0
    gone: int = 0
    examined: int = 0
    position: Mapping[str, Any] = {}
    per_second: float = 0.0


class RefetchedRows(msgspec.Struct, frozen=True):
    """The current rows of the orders that a job has enqueued."""

    fetched: Annotated[int, msgspec.Meta(ge=0, description="Orders that were fetched and stored since.")]
    changed: Annotated[int, msgspec.Meta(ge=0, description="Of these, orders whose rows have changed.")]
    unchanged: Annotated[int, msgspec.Meta(ge=0, description="Of these, orders whose rows are the same.")]
    unfetched: Annotated[int, msgspec.Meta(ge=0, description="Orders that wait, are dead letters, or were erased.")]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as recorded in the database.

    Attributes:
        requested_by: the name of an API key, or `cli:` and the Unix user.
        lease: number of the lease, which a process needs to record progress.
        expired_leases: processes that have died or stalled while they ran it, since it was requested, resumed, or has advanced.
        holder: the process that runs it, or has run it last.
        started_at: when a process has taken it for the first time.
        error: the last problem.
        operation: ID of its entry in the audit log.
    """

    id: int
    source: str = UNNAMED
    request: JobRequest
    requested_by: str
    requested_at: datetime
    state: JobState
    progress: JobProgress
    lease: int = 0
    expired_leases: int = 0
    holder: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    operation: UUID = UUID(int=0)

    @property
    def kind(self) -> JobKind:
        """The change that the job makes."""
        return self.request.kind

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs, or waits for a process."""
        return self.state in {JobState.WAITING, JobState.RUNNING}

    @property
    def danger(self) -> str:
        """The reason why no further process may run it. Empty if one may."""
        if self.expired_leases < _MOST_EXPIRED_LEASES:
            return ""
        return f"{self.expired_leases} processes have died or stalled while they ran it"

    @property
    def output_until(self) -> datetime | None:
        """When the file of the job is deleted, or None if it has no complete file."""
        is_complete = self.kind is JobKind.EXPORT and self.state is JobState.DONE
        return self.ended_at + OUTPUT_KEPT if is_complete and self.ended_at is not None else None
