"""The jobs of one source in the table `jobs`, each with one entry in the audit log, which ends in the same step as the job.

A process holds a lease on the job that it runs, and renews it by recording progress. If the process dies, the lease expires, and another
process may take the job. A process that stops releases its lease instead, so an expired lease counts against the job until the job has
advanced. A process that has lost its lease can no longer record progress, because each lease has a new number.
"""

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg
import msgspec

from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest, JobState
from ingest.domain.orders.field_differences import ChangePreview
from ingest.domain.source_name import UNNAMED
from ingest.store.audit import AuditLog
from ingest.store.connections.statements import Fetches

LEASE_SECONDS = 10.0
"""How long a process may go without renewing its lease."""

_UNTIL = f"clock_timestamp() + make_interval(secs => {LEASE_SECONDS})"
_PARTS = {
    "columns": """id, kind, source, selection::text AS selection, total, rate, requested_by, requested_at, lease, expired_leases, holder,
        started_at, ended_at, error, done, gone, examined, position::text AS position, per_second, operation,
        CASE WHEN state <> 'active' THEN state WHEN leased_until > clock_timestamp() THEN 'running' ELSE 'waiting' END AS state""",
    "of_one": "source = $1 AND id = $2",
    "held": "source = $1 AND id = $2 AND state = 'active' AND lease = $3",
    "is_free": "coalesce(leased_until, '-infinity') <= clock_timestamp()",
    "leased": f"leased_until = {_UNTIL}",
    "until": _UNTIL,
    "ended": "ended_at = clock_timestamp(), leased_until = NULL",
    "progress": "done = $4, gone = $5, examined = $6, position = $7::text::jsonb, per_second = $8",
    "entry": f"""entry AS (
        INSERT INTO audit_log (operation, phase, actor, action, selection, count, source)
        SELECT operation, CASE state WHEN 'active' THEN 'begun' WHEN 'done' THEN 'done' ELSE 'failed' END, requested_by,
            CASE kind WHEN '{JobKind.BACKFILL}' THEN '{JobKind.BACKFILL.action}' ELSE kind END,
            selection || jsonb_build_object('job', id, 'rate', rate), CASE WHEN state <> 'active' THEN done END, source
        FROM changed
    )""",  # noqa: S608  names of our own
}


def _statement(template: str) -> str:
    return template.format_map(_PARTS)


# A source has at most one unfinished backfill.
_ADD = _statement("""
WITH changed AS (
    INSERT INTO jobs (kind, source, selection, total, rate, requested_by, lease, holder, leased_until, started_at)
    SELECT $2, $1, $3::text::jsonb, $4, $5, $6, CASE WHEN $7::text IS NULL THEN 0 ELSE 1 END, $7,
        CASE WHEN $7 IS NOT NULL THEN {until} END, CASE WHEN $7 IS NOT NULL THEN clock_timestamp() END
    ON CONFLICT DO NOTHING RETURNING *
), {entry} SELECT {columns} FROM changed
""")
_REOPEN = _statement("""
WITH changed AS (
    UPDATE jobs SET state = 'active', ended_at = NULL, error = NULL, lease = lease + 1, expired_leases = 0,
        holder = coalesce($3, holder), leased_until = CASE WHEN $3::text IS NOT NULL THEN {until} END
    WHERE {of_one} AND state IN ('failed', 'cancelled') AND (kind <> 'backfill' OR NOT EXISTS (
        SELECT FROM jobs AS other WHERE other.kind = 'backfill' AND other.source = $1 AND other.state = 'active'))
    RETURNING *
), {entry} SELECT {columns} FROM changed
""")
_TAKE = _statement("""
UPDATE jobs SET lease = lease + 1, expired_leases = expired_leases + (leased_until IS NOT NULL)::integer, holder = $3, {leased},
    started_at = coalesce(started_at, clock_timestamp())
WHERE {of_one} AND state = 'active' AND {is_free} RETURNING {columns}
""")
# The oldest of each kind and source, so that many jobs of one do not hide others.
_WAITING = _statement("""
SELECT DISTINCT ON (source, kind) source, kind, id FROM jobs
WHERE source = ANY ($1::text[]) AND kind = ANY ($2::text[]) AND state = 'active' AND {is_free} ORDER BY source, kind, id
""")
_RENEW = _statement("UPDATE jobs SET {leased}, error = $4 WHERE {held} RETURNING id")
_RECORD = _statement("""
UPDATE jobs SET {leased}, error = NULL, {progress},
    expired_leases = CASE WHEN $6 > examined AND $7::text IS NOT NULL THEN 0 ELSE expired_leases END
WHERE {held} RETURNING id
""")
_RELEASE = _statement("UPDATE jobs SET leased_until = NULL WHERE {held} RETURNING id")
# An order that was erased while a preview ran must not stay in its result.
_END = _statement("""
WITH changed AS (
    UPDATE jobs SET {ended}, {progress}, state = $9, error = $10, result = CASE
        WHEN NOT EXISTS (SELECT FROM erased_orders AS e WHERE e.source = $1 AND e.order_id = ANY($12::text[]))
        THEN $11::text::jsonb END
    WHERE {held} RETURNING *
), {entry} SELECT {columns} FROM changed
""")
_RESULT = "SELECT result::text FROM jobs WHERE source = $1 AND id = $2"
_CANCEL = _statement("""
WITH changed AS (UPDATE jobs SET {ended}, state = 'cancelled' WHERE {of_one} AND state = 'active' RETURNING *), {entry}
SELECT {columns} FROM changed
""")
_UNFINISHED_BACKFILL = _statement(
    "SELECT {columns} FROM jobs WHERE source = $1 AND kind = 'backfill' AND state = 'active'"
)
_GET = _statement("SELECT {columns} FROM jobs WHERE source = ANY ($1::text[]) AND id = $2")
# With one query for each source, which reads its newest jobs from the index.
_PAGE = _statement("""
SELECT page.* FROM unnest($1::text[]) AS wanted CROSS JOIN LATERAL (
    SELECT {columns} FROM jobs WHERE source = wanted AND id < $2 AND kind = ANY ($4::text[]) ORDER BY id DESC LIMIT $3
) AS page ORDER BY id DESC LIMIT $3
""")
_LAST = 2**63 - 1


class LeaseLost(Exception):
    """The job was cancelled, or its lease has expired and another process has taken it."""


class Jobs:
    """The jobs of one source.

    Attributes:
        source: the name of the source.
        audit_log: of the source.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A change may have been made nevertheless.
    """

    def __init__(self, connection: Fetches, source: str = UNNAMED) -> None:
        self._connection = connection
        self.source = source
        self.audit_log = AuditLog(connection, source)

    async def add(self, request: JobRequest, requested_by: str, holder: str | None = None) -> Job | None:
        """Add a job, whose lease the holder takes. Without a holder, the job waits.

        Return None for a backfill if another one is unfinished.
        """
        selection = msgspec.json.encode(request.selection).decode()
        arguments = (request.kind.value, selection, request.total, request.rate, requested_by, holder)
        return _only(await self._connection.fetch(_ADD, self.source, *arguments))

    async def reopen(self, job: int, holder: str | None = None) -> Job | None:
        """Let a failed or cancelled job run in the holder, or wait again.

        Return None if it is neither, or is a backfill and another one is unfinished.
        """
        return _only(await self._connection.fetch(_REOPEN, self.source, job, holder))

    async def take(self, job: int, holder: str) -> Job | None:
        """Take the lease of a waiting job. Return None if it does not wait, or is a backfill."""
        return _only(await self._connection.fetch(_TAKE, self.source, job, holder))

    async def get(self, job: int) -> Job | None:
        """Return a job, or None if the source has none with this ID."""
        return await find_job(self._connection, [self.source], job)

    async def result(self, job: int) -> ChangePreview | None:
        """Return the result of a preview. None if there is none, or an order in it was erased."""
        records = await self._connection.fetch(_RESULT, self.source, job)
        text = records[0]["result"] if records else None
        return None if text is None else msgspec.json.decode(text, type=ChangePreview)

    async def newest(
        self, limit: int, before: int | None = None, kinds: Collection[JobKind] = tuple(JobKind)
    ) -> list[Job]:
        """Return the newest jobs of the source and of these kinds, before an ID."""
        return await newest_jobs(self._connection, [self.source], limit, before, kinds)

    async def unfinished_backfill(self) -> Job | None:
        """Return the backfill that runs or waits."""
        return _only(await self._connection.fetch(_UNFINISHED_BACKFILL, self.source))

    async def cancel(self, job: int) -> Job | None:
        """Cancel an unfinished job. The process that runs it stops before its next changes."""
        return _only(await self._connection.fetch(_CANCEL, self.source, job))

    # -- by the process that holds the lease. Each raises `LeaseLost` -----------------------------------------------

    async def renew(self, held: Job, problem: str | None = None) -> None:
        """Renew the lease, and record the problem because of which the job currently waits."""
        _require(await self._connection.fetch(_RENEW, self.source, held.id, held.lease, problem))

    async def record(self, held: Job, progress: JobProgress) -> None:
        """Record progress, and renew the lease."""
        _require(await self._connection.fetch(_RECORD, self.source, held.id, held.lease, *_values(progress)))

    async def release(self, held: Job) -> None:
        """Give up the lease, so that another process may take the job immediately."""
        _require(await self._connection.fetch(_RELEASE, self.source, held.id, held.lease))

    async def end(
        self,
        held: Job,
        state: JobState,
        progress: JobProgress,
        error: str | None = None,
        result: ChangePreview | None = None,
        order_ids: Collection[str] = (),
    ) -> None:
        """End the job, and record its progress in the same step.

        Its result is recorded unless one of the orders in it was erased.
        """
        text = None if result is None else msgspec.json.encode(result).decode()
        arguments = (held.id, held.lease, *_values(progress), state.value, error, text, [*order_ids])
        _require(await self._connection.fetch(_END, self.source, *arguments))


async def find_job(connection: Fetches, sources: Collection[str], job: int) -> Job | None:
    """Return the job with this ID, or None if none of the sources has it."""
    return _only(await connection.fetch(_GET, [*sources], job))


async def newest_jobs(
    connection: Fetches,
    sources: Collection[str],
    limit: int,
    before: int | None = None,
    kinds: Collection[JobKind] = tuple(JobKind),
) -> list[Job]:
    """Return the newest jobs of these sources and kinds, before an ID."""
    names, last = [kind.value for kind in kinds], _LAST if before is None else before
    records = await connection.fetch(_PAGE, [*sources], last, limit, names)
    return [_job(record) for record in records]


async def waiting_jobs(
    connection: Fetches, sources: Collection[str], kinds: Collection[JobKind]
) -> list[tuple[str, JobKind, int]]:
    """Return the source, the kind and the ID of the oldest job of each source and kind that waits for a process."""
    records = await connection.fetch(_WAITING, [*sources], [kind.value for kind in kinds])
    return [(record["source"], JobKind(record["kind"]), record["id"]) for record in records]


def _values(progress: JobProgress) -> tuple[Any, ...]:
    position = msgspec.json.encode(progress.position).decode() if progress.position else None
    return progress.done, progress.gone, progress.examined, position, progress.per_second


def _require(records: Sequence[asyncpg.Record]) -> None:
    if not records:
        raise LeaseLost


def _only(records: Sequence[asyncpg.Record]) -> Job | None:
    return _job(records[0]) if records else None


def _job(record: asyncpg.Record) -> Job:
    columns = dict(record)
    columns["selection"] = msgspec.json.decode(columns["selection"])
    columns["position"] = msgspec.json.decode(columns["position"] or "{}")
    return msgspec.convert(columns | {"request": columns, "progress": columns}, Job)
