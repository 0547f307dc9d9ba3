"""Lists manual changes from the audit log, the newest first."""

from typing import Any
from uuid import UUID

import msgspec

from ingest.domain.operating.audited_operation import AuditedOperation, AuditFilter, OperationState
from ingest.operations.json_types import Time
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


class ShownOperation(msgspec.Struct, frozen=True):
    """A manual change. `count` is the number of changed entries or orders, as far as it is known."""

    operation: UUID
    at: Time
    actor: str
    role: str | None
    action: str
    source: str
    selection: dict[str, Any]
    state: OperationState
    ended_at: Time | None
    count: int | None


def shown(operation: AuditedOperation, sees: Visibility = EVERYTHING) -> ShownOperation:
    """Return the form of an operation in responses."""
    return ShownOperation(
        operation.operation,
        operation.at.isoformat(),
        operation.actor,
        operation.role,
        operation.action,
        operation.source,
        sees.selection(operation.selection),
        operation.state,
        None if operation.ended_at is None else operation.ended_at.isoformat(),
        operation.count,
    )
