"""Records manual changes and reads of documents, with their actors, in the log and in the table `audit_log`.

The first row is written before the change. If that fails, the change is not made, so no change goes unrecorded. A second row records the
result. If the second row cannot be written, or the process dies before it, the change stands and the first row shows that it began.

Controls of workers, such as a pause, are recorded with their actor in Redis as well. They are also changed, and orders are also enqueued,
while PostgreSQL is unavailable.
Documents are also read then, because dead letters are in Redis. Their only row is written before they are sent.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ingest.domain.errors import ConfigError, RowsRefused, StoreUnavailable
from ingest.operations.backends import Backends
from ingest.operations.declared import Declaration
from ingest.store.audit import AuditLog, Phase
from ingest.store.connections.pool import Pool
from ingest.telemetry.logs import get_logger

_log = get_logger("audit")

# A control or a read does not wait longer for an audit row.
_LONGEST_WAIT = 2.0


@dataclass(slots=True)
class Operation:
    """One change by an operator or a program.

    Attributes:
        actor: the name of an API key, or `cli:` followed by the Unix user.
        declared: its declaration, whose name is the action.
        selection: the selected entries or orders.
        count: entries or orders changed so far.
        id: the same in all rows of the operation.
    """

    actor: str
    declared: Declaration
    selection: Mapping[str, Any]
    count: int = 0
    id: UUID = field(default_factory=uuid4)

    @property
    def action(self) -> str:
        """The action in the audit log."""
        return self.declared.name


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads documents.

    Attributes:
        actor: as of an `Operation`.
        route: the route of the HTTP API, the page of the console, or the command.
    """

    actor: str
    route: str


@asynccontextmanager
async def audited(
    audit_log: AuditLog, actor: str, declared: Declaration, selection: Mapping[str, Any]
) -> AsyncIterator[Operation]:
    """Record the change made in the block. The block updates the operation's `count`.

    Raises:
        StoreUnavailable: PostgreSQL is unavailable, and no change was made.
    """
    operation = Operation(actor, declared, selection)
    await audit_log.add(operation.id, Phase.BEGUN, actor, declared.name, selection, None)
    async with ending(audit_log, operation):
        yield operation


@asynccontextmanager
async def audited_control(
    audit_log: AuditLog,
    actor: str,
    declared: Declaration,
    selection: Mapping[str, Any],
    count: int = 0,
    *,
    on_unrecorded: Callable[[str], None] | None = None,
) -> AsyncIterator[Operation]:
    """Record the change made in the block, which needs Redis only, and is made even if PostgreSQL is unavailable.

    Args:
        audit_log: of the source.
        actor: who makes it.
        declared: the operation that makes it.
        selection: the change, or the changed entries or orders.
        count: changed controls. The block updates the operation's `count` of other changes.
        on_unrecorded: of a command, which reports its change itself: called if the change is not recorded, with the reason.
            Without it, the change or the reason is logged.
    """
    operation = Operation(actor, declared, selection, count)
    if reason := await _unrecorded(audit_log, operation, Phase.BEGUN):
        if on_unrecorded is None:
            _log.error("audit_incomplete", **_about(audit_log.source, operation), problem=reason)
        else:
            on_unrecorded(f"PostgreSQL is unavailable, so the audit log does not record this change: {reason}")
        yield operation
        return
    async with ending(audit_log, operation, log_result if on_unrecorded is None else _log_nothing):
        yield operation


async def record_read(
    audit_logs: Iterable[AuditLog], reader: Reader, declared: Declaration, selection: Mapping[str, Any]
) -> None:
    """Record that documents of some sources are about to be sent, which happens even if PostgreSQL cannot be used.

    Args:
        audit_logs: of the sources.
        reader: who reads them.
        declared: the operation that sends them.
        selection: the criteria of the documents, never their content.
    """
    for audit_log in audit_logs:
        operation = Operation(reader.actor, declared, {"route": reader.route, **selection})
        if reason := await _unrecorded(audit_log, operation, Phase.DONE):
            _log.error("audit_incomplete", **_about(audit_log.source, operation), problem=reason)
            return


async def _unrecorded(audit_log: AuditLog, operation: Operation, phase: Phase) -> str:
    """Add the row of a change or read that is made in any case. Return why there is none, or an empty text."""
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            await audit_log.add(operation.id, phase, operation.actor, operation.action, operation.selection, None)
    except (StoreUnavailable, ConfigError, RowsRefused, TimeoutError) as error:
        return str(error) or "no answer in time"
    return ""


async def record_read_of(
    sources: Sequence[Backends], reader: Reader, declared: Declaration, selection: Mapping[str, Any]
) -> None:
    """Record a read as `record_read`, and open a connection for it, because a command records one read."""
    async with Pool.open(sources[0].postgres_dsn, size=1) as pool:
        await record_read([AuditLog(pool, each.source) for each in sources], reader, declared, selection)


def log_result(source: str, operation: Operation, error: str | None) -> None:
    """Log the same facts as the audit log contains. On a terminal, a command prints its own result, and this is for debugging."""
    if error is None:
        is_shown = sys.stderr.isatty() and operation.actor.startswith("cli:")
        (_log.debug if is_shown else _log.info)("operation_done", **_about(source, operation))
    else:
        _log.warning("operation_failed", **_about(source, operation), error=error)


def _log_nothing(source: str, operation: Operation, error: str | None) -> None:
    """The command reports the result."""


@asynccontextmanager
async def ending(
    audit_log: AuditLog, operation: Operation, log: Callable[[str, Operation, str | None], None] = log_result
) -> AsyncIterator[None]:
    """Record the result of a change that has already been recorded as begun."""
    try:
        yield
    except BaseException as error:
        log(audit_log.source, operation, type(error).__name__)
        await _end(audit_log, operation, Phase.FAILED)
        raise
    log(audit_log.source, operation, None)
    await _end(audit_log, operation, Phase.DONE)


async def _end(audit_log: AuditLog, operation: Operation, phase: Phase) -> None:
    try:
        await audit_log.add(
            operation.id, phase, operation.actor, operation.action, operation.selection, operation.count
        )
    except StoreUnavailable as unavailable:
        _log.error("audit_incomplete", **_about(audit_log.source, operation), problem=str(unavailable))


def _about(source: str, operation: Operation) -> dict[str, object]:
    return {
        "source": source,
        "actor": operation.actor,
        "action": operation.action,
        "selection": operation.selection,
        "count": operation.count,
        "operation": str(operation.id),
    }
