"""A backfill: a job that reads the shop's list for a period, and enqueues the orders that are missing or outdated.

A dry run is a backfill that only counts these orders.
"""

from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from ingest.domain.errors import InvalidInput
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest

# Shops have no older orders, and some formats of times cannot be used for earlier years.
_EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)


class InvalidPeriod(InvalidInput, ValueError):
    """A period in which no order can have changed."""


class BackfillRequest(msgspec.Struct, frozen=True):
    """A new backfill.

    Attributes:
        since: start of the period.
        until: its end. Both are inclusive.
        rate: limit of enqueued orders per second, or None.
        dry_run: whether orders are only counted.
        ends_now: whether it ends at the beginning of the reading by the shop's clock. The recorded end is then the request, by our clock.
    """

    since: datetime
    until: datetime
    rate: float | None = None
    dry_run: bool = False
    ends_now: bool = False

    @classmethod
    def within(cls, since: datetime, until: datetime | None, now: datetime, **options: Any) -> Self:
        """Return the request for a period. See `period_of`."""
        since, end = period_of(since, until, now)
        return cls(since, end or now, ends_now=end is None, **options)

    @property
    def end(self) -> datetime | None:
        """The end of the period, or None for now by the shop's clock."""
        return None if self.ends_now else self.until

    def as_job(self) -> JobRequest:
        """Return the request for the job."""
        period = {"since": self.since.isoformat(), "until": self.until.isoformat(), "dry_run": self.dry_run}
        return JobRequest(JobKind.BACKFILL, period | ({"ends_now": True} if self.ends_now else {}), rate=self.rate)

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return the request that the job contains."""
        return msgspec.convert({**job.request.selection, "rate": job.request.rate}, cls)


def period_of(since: datetime, until: datetime | None, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the start and the end of a period. It ends now at the latest, and then its end is None.

    Our clock may differ from the shop's clock, by which the period counts.

    Raises:
        InvalidPeriod: the period is empty, or begins before 1971.
    """
    end = None if until is None or until >= now else until
    if since >= (end or now):
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

    def as_job(self, *, dry_run: bool, more: int = 0) -> JobProgress:
        """Return the progress of the job, of which some more orders are enqueued."""
        position = {"next_page": self.next_page, "missing": self.missing, "outdated": self.outdated}
        return JobProgress(0 if dry_run else self.differing + more, 0, self.listed, position)

    @classmethod
    def of(cls, progress: JobProgress) -> Self:
        """Return the progress that the job has recorded."""
        return msgspec.convert({"listed": progress.examined, **progress.position}, cls)
