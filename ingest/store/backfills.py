"""The backfills of one source in the table `jobs`.

A process holds a lease on the job that it runs, and renews it. If the process dies, the lease expires, and another process may take the
job. A process that has lost its lease can no longer record progress, because each lease has a new number.
"""

from collections.abc import Sequence

import asyncpg

from ingest.domain.operating.backfill import Backfill, BackfillProgress, BackfillRequest, JobState
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.statements import Fetches

LEASE_SECONDS = 30.0
"""How long a process may go without renewing its lease."""

_UNTIL = f"clock_timestamp() + make_interval(secs => {LEASE_SECONDS})"
_PARTS = {
    "columns": """id, source, since, until, rate, dry_run, requested_by, requested_at, next_page, listed, missing, outdated,
        lease, holder, started_at, ended_at, error,
        CASE WHEN state <> 'active' THEN state WHEN leased_until > clock_timestamp() THEN 'running' ELSE 'waiting' END AS state""",
    "active": "kind = 'backfill' AND source = $1 AND state = 'active'",
    "of_one": "kind = 'backfill' AND source = $1 AND id = $2",
    "held": "kind = 'backfill' AND source = $1 AND id = $2 AND state = 'active' AND lease = $3",
    "is_free": "coalesce(leased_until, '-infinity') <= clock_timestamp()",
    "leased": f"leased_until = {_UNTIL}",
    "until": _UNTIL,
    "ended": "ended_at = clock_timestamp(), leased_until = NULL",
}


def _statement(template: str) -> str:
    return template.format_map(_PARTS)


_ADD = _statement("""
INSERT INTO jobs (kind, source, since, until, rate, dry_run, requested_by, lease, holder, leased_until, started_at)
SELECT 'backfill', $1, $2, $3, $4, $5, $6, CASE WHEN $7::text IS NULL THEN 0 ELSE 1 END, $7,
    CASE WHEN $7 IS NOT NULL THEN {until} END, CASE WHEN $7 IS NOT NULL THEN clock_timestamp() END
WHERE NOT EXISTS (SELECT FROM jobs WHERE {active})
ON CONFLICT DO NOTHING
RETURNING {columns}
""")
_REOPEN = _statement("""
UPDATE jobs SET state = 'active', ended_at = NULL, error = NULL, lease = lease + 1, holder = coalesce($3, holder),
    leased_until = CASE WHEN $3::text IS NOT NULL THEN {until} END
WHERE {of_one} AND state IN ('failed', 'cancelled') AND NOT EXISTS (SELECT FROM jobs WHERE {active})
RETURNING {columns}
""")
_TAKE = _statement("""
UPDATE jobs SET lease = lease + 1, holder = $3, {leased}, started_at = coalesce(started_at, clock_timestamp())
WHERE {of_one} AND {active} AND {is_free}
RETURNING {columns}
""")
_WAITING = _statement("SELECT id FROM jobs WHERE {active} AND {is_free}")
_RENEW = _statement("UPDATE jobs SET {leased}, error = $4 WHERE {held} RETURNING id")
_RECORD = _statement("""
UPDATE jobs SET {leased}, next_page = $4, listed = $5, missing = $6, outdated = $7, error = NULL WHERE {held} RETURNING id
""")
_RELEASE = _statement("UPDATE jobs SET leased_until = NULL WHERE {held} RETURNING id")
_END = _statement("""
UPDATE jobs SET {ended}, next_page = $4, listed = $5, missing = $6, outdated = $7, state = $8, error = $9
WHERE {held} RETURNING id
""")
_CANCEL = _statement("UPDATE jobs SET {ended}, state = 'cancelled' WHERE {of_one} AND {active} RETURNING {columns}")
_UNFINISHED = _statement("SELECT {columns} FROM jobs WHERE {active}")
_GET = _statement("SELECT {columns} FROM jobs WHERE kind = 'backfill' AND source = ANY ($1::text[]) AND id = $2")
_PAGE = _statement("""
SELECT {columns} FROM jobs WHERE kind = 'backfill' AND source = ANY ($1::text[]) AND id < $2 ORDER BY id DESC LIMIT $3
""")
_LAST = 2**63 - 1


class LeaseLost(Exception):
    """The job was cancelled, or its lease has expired and another process has taken it."""


class Backfills:
    """The backfills of one source.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
    """

    def __init__(self, connection: Fetches, source: str = UNNAMED) -> None:
        self._connection = connection
        self.source = source

    async def add(self, request: BackfillRequest, requested_by: str, holder: str | None = None) -> Backfill | None:
        """Add a backfill, whose lease the holder takes. Without a holder, it waits. Return None if another one is unfinished."""
        arguments = (request.since, request.until, request.rate, request.dry_run, requested_by, holder)
        return _only(await self._connection.fetch(_ADD, self.source, *arguments))

    async def reopen(self, job: int, holder: str | None = None) -> Backfill | None:
        """Let a failed or cancelled backfill run in the holder, or wait again.

        Return None if it is neither, or another one is unfinished.
        """
        return _only(await self._connection.fetch(_REOPEN, self.source, job, holder))

    async def take(self, job: int, holder: str) -> Backfill | None:
        """Take the lease of a waiting backfill. Return None if it does not wait."""
        return _only(await self._connection.fetch(_TAKE, self.source, job, holder))

    async def take_waiting(self, holder: str) -> Backfill | None:
        """Take the lease of the backfill that waits. Return None if there is none."""
        for record in await self._connection.fetch(_WAITING, self.source):
            if taken := await self.take(record["id"], holder):
                return taken
        return None

    async def get(self, job: int) -> Backfill | None:
        """Return a backfill, or None if the source has none with this ID."""
        return await find_backfill(self._connection, [self.source], job)

    async def newest(self, limit: int, before: int | None = None) -> list[Backfill]:
        """Return the newest backfills of the source, before an ID."""
        return await newest_backfills(self._connection, [self.source], limit, before)

    async def unfinished(self) -> Backfill | None:
        """Return the backfill that runs or waits."""
        return _only(await self._connection.fetch(_UNFINISHED, self.source))

    async def cancel(self, job: int) -> Backfill | None:
        """Cancel an unfinished backfill. The process that runs it stops before it enqueues further pages."""
        return _only(await self._connection.fetch(_CANCEL, self.source, job))

    # -- by the process that holds the lease. Each raises `LeaseLost` -----------------------------------------------

    async def renew(self, held: Backfill, problem: str | None = None) -> None:
        """Renew the lease, and record the problem because of which the job currently waits."""
        _require(await self._connection.fetch(_RENEW, self.source, held.id, held.lease, problem))

    async def record(self, held: Backfill, progress: BackfillProgress) -> None:
        """Record progress, and renew the lease."""
        _require(await self._connection.fetch(_RECORD, self.source, held.id, held.lease, *_values(progress)))

    async def release(self, held: Backfill) -> None:
        """Give up the lease, so that another process may take the job immediately."""
        _require(await self._connection.fetch(_RELEASE, self.source, held.id, held.lease))

    async def end(self, held: Backfill, state: JobState, progress: BackfillProgress, error: str | None = None) -> None:
        """End the job, and record its progress in the same step."""
        arguments = (held.id, held.lease, *_values(progress), state.value, error)
        _require(await self._connection.fetch(_END, self.source, *arguments))


async def find_backfill(connection: Fetches, sources: Sequence[str], job: int) -> Backfill | None:
    """Return the backfill with this ID, or None if none of the sources has it."""
    return _only(await connection.fetch(_GET, [*sources], job))


async def newest_backfills(
    connection: Fetches, sources: Sequence[str], limit: int, before: int | None = None
) -> list[Backfill]:
    """Return the newest backfills of these sources, before an ID."""
    records = await connection.fetch(_PAGE, [*sources], _LAST if before is None else before, limit)
    return [_backfill(record) for record in records]


def _values(progress: BackfillProgress) -> tuple[str | None, int, int, int]:
    return progress.next_page, progress.listed, progress.missing, progress.outdated


def _require(records: Sequence[asyncpg.Record]) -> None:
    if not records:
        raise LeaseLost


def _only(records: Sequence[asyncpg.Record]) -> Backfill | None:
    return _backfill(records[0]) if records else None


def _backfill(record: asyncpg.Record) -> Backfill:
    return Backfill(
        id=record["id"],
        source=record["source"],
        request=BackfillRequest(record["since"], record["until"], record["rate"], record["dry_run"]),
        requested_by=record["requested_by"],
        requested_at=record["requested_at"],
        state=JobState(record["state"]),
        progress=BackfillProgress(record["next_page"], record["listed"], record["missing"], record["outdated"]),
        lease=record["lease"],
        holder=record["holder"],
        started_at=record["started_at"],
        ended_at=record["ended_at"],
        error=record["error"],
    )
