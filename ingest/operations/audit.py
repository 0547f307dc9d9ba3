"""Records manual changes and their actors in the log and in the table `audit_log`.

The first row is written before the change. If that fails, the change is not made, so no change goes unrecorded. A second row records the
result. If the second row cannot be written, or the process dies before it, the change stands and the first row shows that it began.

Controls of workers, such as a pause, are recorded with their actor in Redis as well, and are also changed while PostgreSQL is unavailable.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ingest.domain.errors import StoreUnavailable
from ingest.store.audit import AuditLog, Phase
from ingest.telemetry.logs import get_logger

_log = get_logger("audit")

# A control does not wait longer for an audit row.
_LONGEST_WAIT = 2.0


@dataclass(slots=True)
class Operation:
    """One change by an operator or a program.

    Attributes:
        actor: the name of an API key, or `cli:` followed by the Unix user.
        action: for example `dead_letters.replay`.
        selection: the selected entries or orders.
        count: entries or orders changed so far.
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
    """Record the change made in the block. The block updates the operation's `count`.

    Raises:
        StoreUnavailable: PostgreSQL is unavailable, and no change was made.
    """
    operation = Operation(actor, action, selection)
    await audit_log.add(operation.id, Phase.BEGUN, actor, action, selection, None)
    async with ending(audit_log, operation):
        yield operation


@asynccontextmanager
async def audited_control(
    audit_log: AuditLog, actor: str, action: str, selection: Mapping[str, Any], count: int
) -> AsyncIterator[None]:
    """Record the change of a control made in the block, which is made even if PostgreSQL is unavailable.

    Args:
        audit_log: of the source.
        actor: who changes it.
        action: for example `pause`.
        selection: the change.
        count: changed controls.
    """
    operation = Operation(actor, action, selection, count)
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            await audit_log.add(operation.id, Phase.BEGUN, actor, action, selection, None)
    except (StoreUnavailable, TimeoutError) as unavailable:
        _log.error("audit_incomplete", **_about(audit_log, operation), problem=str(unavailable) or "no answer in time")
        yield
        return
    async with ending(audit_log, operation):
        yield


@asynccontextmanager
async def ending(audit_log: AuditLog, operation: Operation) -> AsyncIterator[None]:
    """Record the result of a change that has already been recorded as begun."""
    try:
        yield
    except BaseException as error:
        await _end(audit_log, operation, Phase.FAILED, type(error).__name__)
        raise
    await _end(audit_log, operation, Phase.DONE, None)


async def _end(audit_log: AuditLog, operation: Operation, phase: Phase, error: str | None) -> None:
    about = _about(audit_log, operation)
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


def _about(audit_log: AuditLog, operation: Operation) -> dict[str, object]:
    return {
        "source": audit_log.source,
        "actor": operation.actor,
        "action": operation.action,
        "selection": operation.selection,
        "count": operation.count,
        "operation": str(operation.id),
    }
