"""Lists manual changes from the audit log, the newest first."""

from typing import Any

from ingest.domain.operating.audited_operation import AuditedOperation, AuditFilter
from ingest.operations.visibility import EVERYTHING, Visibility
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool

MOST_LISTED = 500


async def newest(dsn: str, selection: AuditFilter, limit: int) -> list[AuditedOperation]:
    """Return the newest operations that match.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    found: list[AuditedOperation] = []
    async with Pool.open(dsn, size=1) as pool:
        while len(found) < limit:
            wanted = min(MOST_LISTED, limit - len(found))
            page = await audited_operations(pool, selection, wanted, found[-1].number if found else None)
            found += page
            if len(page) < wanted:
                break
    return found


def as_object(operation: AuditedOperation, sees: Visibility = EVERYTHING) -> dict[str, Any]:
    """Convert an operation for JSON."""
    return {
        "operation": str(operation.operation),
        "at": operation.at.isoformat(),
        "actor": operation.actor,
        "role": operation.role,
        "action": operation.action,
        "source": operation.source,
        "selection": sees.selection(operation.selection),
        "state": operation.state.value,
        "ended_at": None if operation.ended_at is None else operation.ended_at.isoformat(),
        "count": operation.count,
    }
