"""Remaps stored orders for an operator, with a record of who did it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order import document_id
from ingest.domain.orders.order_filter import OrderPosition
from ingest.domain.orders.order_history import HistoryEvent
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.declared import DECLARED
from ingest.operations.rebuilding.refetch import ending_now
from ingest.operations.rebuilding.remap import Decoder, Identify, RemapStep, remap_steps
from ingest.operations.rebuilding.remap_report import RemapReport
from ingest.operations.state.worker_versions import require_same_version
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool
from ingest.store.orders.documents import DocumentSelection
from ingest.store.orders.history import HistoryStore


async def remap_orders(
    backends: Backends,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    actor: str,
    *,
    identify: Identify = document_id,
    on_progress: Callable[[int, int | None], None] = lambda _done, _total: None,
    on_locked: Callable[[str], None] = lambda _after: None,
) -> None:
    """Rebuild the selected orders. See `remap_steps`.

    Raises:
        WorkersDiffer: workers store newer documents by another version of a mapping, for example.
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    await require_same_version(backends)
    selection = replace(selection, orders=ending_now(selection.orders))
    async with Pool.open(backends.postgres_dsn, size=1) as pool:
        recorded = recorded_selection(selection)
        async with audited(AuditLog(pool, backends.source), actor, DECLARED[JobKind.REMAP], recorded) as operation:
            steps = recorded_steps(
                backends, pool, decoder, selection, report, actor, identify=identify, on_locked=on_locked
            )
            async with aclosing(steps):
                async for step in steps:
                    operation.count = report.changed + report.inserted
                    on_progress(report.examined, step.total)


async def recorded_steps(
    backends: Backends,
    pool: Pool,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    actor: str,
    *,
    identify: Identify = document_id,
    on_locked: Callable[[str], None] = lambda _after: None,
    after: OrderPosition | None = None,
) -> AsyncGenerator[RemapStep, None]:
    """Rebuild the selected orders as `remap_steps`, and record it in their history if one is kept."""
    history = HistoryStore(pool, backends.source)
    dsn, source = backends.postgres_dsn, backends.source
    steps = remap_steps(dsn, source, decoder, selection, report, identify=identify, on_locked=on_locked, after=after)
    async with aclosing(steps):
        async for step in steps:
            if backends.keeps_history and step.changed:
                await history.add_operation(step.changed, HistoryEvent.REMAPPED, actor)
            yield step


def recorded_selection(selection: DocumentSelection) -> dict[str, object]:
    """Return a selection for the audit log."""
    period = {"fetched_from": selection.since, "fetched_to": selection.until}
    times = {name: moment.isoformat() for name, moment in period.items() if moment is not None}
    return selection.orders.as_object() | times
