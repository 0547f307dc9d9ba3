"""Records who changes what by hand: in the log, and in the table `audit_log`.

A row is written before the change, so that no change goes unrecorded: if that row cannot be written, nothing is changed. A second
one says how it ended. If only the second one cannot be written, the change stands, the log has it, and the first row shows that it was
begun; so it does when the process dies in between.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ingest.domain.errors import StoreUnavailable
from ingest.store.audit import AuditLog, Phase
from ingest.telemetry.logs import get_logger

_log = get_logger("audit")


@dataclass(slots=True)
class Operation:
    """One change by a person or a program.

    Attributes:
        actor: who: the name of an API key, or `cli:` and the Unix user.
        action: what, such as `dead_letters.replay`.
        selection: of what.
        count: how many entries or orders were changed so far.
        id: the same in all rows of the operation.
    """

    actor: str
    action: str
    selection: Mapping[str, Any]
    count: int = 0
    id: UUID = field(default_factory=uuid4)


@asynccontextmanager
async def audited(
    audit_log: AuditLog, actor: str, action: str, selection: Mapping[str, Any]
) -> AsyncIterator[Operation]:
    """Record the change that is made in the block, which counts in the operation what it has changed.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used now; nothing was changed.
    """
    operation = Operation(actor, action, selection)
    await audit_log.add(operation.id, Phase.BEGUN, actor, action, selection, None)
    async with ending(audit_log, operation):
        yield operation


@asynccontextmanager
async def ending(audit_log: AuditLog, operation: Operation) -> AsyncIterator[None]:
    """Record how the change ends whose beginning is in the table already."""
    try:
        yield
    except BaseException as error:
        await _end(audit_log, operation, Phase.FAILED, type(error).__name__)
        raise
    await _end(audit_log, operation, Phase.DONE, None)


async def _end(audit_log: AuditLog, operation: Operation, phase: Phase, error: str | None) -> None:
    about: dict[str, object] = {
        "actor": operation.actor,
        "action": operation.action,
        "selection": operation.selection,
        "count": operation.count,
        "operation": str(operation.id),
    }
    if error is None:
        _log.info("operation_done", **about)
    else:
        _log.warning("operation_failed", **about, error=error)
    try:
        await audit_log.add(
            operation.id, phase, operation.actor, operation.action, operation.selection, operation.count
        )
    except StoreUnavailable as unavailable:
        _log.error("audit_incomplete", **about, problem=str(unavailable))
