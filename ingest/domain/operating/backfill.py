"""A backfill: a job that reads the shop's list for a period, and enqueues the orders that are missing or outdated.

A dry run is a backfill that only counts these orders.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from ingest.domain.source_name import UNNAMED

# Shops have no older orders, and some formats of times cannot be used for earlier years.
_EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)


class InvalidPeriod(ValueError):
    """A period in which no order can have changed."""


class JobState(StrEnum):
    """The state of a job. A waiting job is run by the next process that looks for jobs."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BackfillRequest(msgspec.Struct, frozen=True):
    """A new backfill.

    Attributes:
        since: start of the period.
        until: its end. Both are inclusive.
        rate: limit of enqueued orders per second, or None.
        dry_run: whether orders are only counted.
    """

    since: datetime
    until: datetime
    rate: float | None = None
    dry_run: bool = False


def period_of(since: datetime, until: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of a period. It ends now at the latest.

    Raises:
        InvalidPeriod: the period is empty, or begins before 1971.
    """
    end = now if until is None else min(until, now)
    if since >= end:
        raise InvalidPeriod("since must be earlier than until, and earlier than now")
    if since < _EARLIEST:
        raise InvalidPeriod(f"since must be {_EARLIEST:%Y-%m-%d} or later")
    return since, end


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a backfill has come.

    Attributes:
        next_page: cursor of the next page of the list, or None for the first page.
        listed: orders that were read from the list.
        missing: orders without a row. They were enqueued, except in a dry run.
        outdated: orders with an older row. They were enqueued, except in a dry run.
    """

    next_page: str | None = None
    listed: int = 0
    missing: int = 0
    outdated: int = 0

    @property
    def differing(self) -> int:
        """The number of missing and outdated orders."""
        return self.missing + self.outdated


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill as recorded in the database.

    Attributes:
        requested_by: the name of an API key, or `cli:` and the Unix user.
        lease: number of the lease, which a process needs to record progress.
        holder: the process that runs it, or has run it last.
        started_at: when a process has taken it for the first time.
        error: the last problem.
    """

    id: int
    source: str = UNNAMED
    request: BackfillRequest
    requested_by: str
    requested_at: datetime
    state: JobState
    progress: BackfillProgress
    lease: int = 0
    holder: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None

    @property
    def enqueued(self) -> int:
        """The number of enqueued orders."""
        return 0 if self.request.dry_run else self.progress.differing

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs, or waits for a process."""
        return self.state in {JobState.WAITING, JobState.RUNNING}

    def as_dict(self) -> dict[str, Any]:
        """Return the backfill for JSON."""
        return {
            "id": self.id,
            "source": self.source,
            "state": self.state.value,
            "since": self.request.since,
            "until": self.request.until,
            "rate": self.request.rate,
            "dry_run": self.request.dry_run,
            "listed": self.progress.listed,
            "missing": self.progress.missing,
            "outdated": self.progress.outdated,
            # Orders may be enqueued twice after the list was read from its beginning.
            "up_to_date": max(0, self.progress.listed - self.progress.differing),
            "enqueued": self.enqueued,
            "requested_by": self.requested_by,
            "requested_at": self.requested_at,
            "holder": self.holder,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "error": self.error,
        }
