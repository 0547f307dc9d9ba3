"""Reads the operations in the table `audit_log`, the newest first."""

import asyncpg
import msgspec

from ingest.domain.operating.audited_operation import AuditedOperation, AuditFilter, OperationState
from ingest.store.connections.statements import Fetches

# The first row of each operation with its last one of the same role, because no role may report the end of another's operation. The entry
# of a job may end with a row of another role, because another process runs the job. An operation that began while PostgreSQL was
# unavailable has only one row.
_OF_THE_SAME = """
    SELECT o.phase, o.at, o.count FROM audit_log AS o WHERE o.operation = a.operation AND (
        o.role IS NOT DISTINCT FROM a.role OR
        a.selection ? 'job' AND (o.actor, o.action, o.selection) = (a.actor, a.action, a.selection))
"""
_PAGE = f"""
SELECT a.id, a.operation, a.at, a.actor, a.role, a.action, a.source, a.selection::text AS selection, a.phase, a.count,
    last.phase AS last_phase, last.at AS last_at, last.count AS last_count
FROM audit_log AS a
LEFT JOIN LATERAL ({_OF_THE_SAME} AND o.id > a.id ORDER BY o.id DESC LIMIT 1) AS last ON true
WHERE a.id < $1
    AND NOT EXISTS ({_OF_THE_SAME} AND o.id < a.id)
    AND ($2::text[] IS NULL OR a.source = ANY ($2))
    AND ($3::text IS NULL OR a.actor = $3)
    AND ($4::text IS NULL OR a.action = $4 OR right($4, 1) = '.' AND starts_with(a.action, $4))
    AND ($5::timestamptz IS NULL OR a.at >= $5)
    AND ($6::timestamptz IS NULL OR a.at < $6)
ORDER BY a.id DESC LIMIT $7
"""  # noqa: S608  a constant
_LAST = 2**63 - 1


async def audited_operations(
    connection: Fetches, selection: AuditFilter, limit: int, before: int | None = None
) -> list[AuditedOperation]:
    """Return the newest operations that match, before the one with this number.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
        StoreTooSlow: too many rows had to be examined.
    """
    rows = await connection.fetch(
        _PAGE,
        _LAST if before is None else before,
        None if selection.sources is None else list(selection.sources),
        selection.actor,
        selection.action,
        selection.since,
        selection.until,
        limit,
    )
    return [_operation_of(row) for row in rows]


def _operation_of(row: asyncpg.Record) -> AuditedOperation:
    # Without a second row, the first one may be the result.
    prefix = "" if row["last_phase"] is None else "last_"
    phase = row[f"{prefix}phase"]
    is_finished = phase != "begun"
    return AuditedOperation(
        row["id"],
        row["operation"],
        row["at"],
        row["actor"],
        row["role"],
        row["action"],
        row["source"],
        msgspec.json.decode(row["selection"]),
        OperationState(phase) if is_finished else OperationState.UNFINISHED,
        row[f"{prefix}at"] if is_finished else None,
        row[f"{prefix}count"],
    )
