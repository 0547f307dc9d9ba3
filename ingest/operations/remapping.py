"""Remaps stored orders for an operator, with a record of who did it."""

from collections.abc import Sequence
from dataclasses import replace

from ingest.domain.orders.order import document_id
from ingest.domain.orders.order_filter import OrderPosition
from ingest.domain.orders.order_history import HistoryEvent
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.refetch import ending_now
from ingest.operations.remap import Decoder, Identify, RemapCalls, remap
from ingest.operations.remap_report import RemapReport
from ingest.store.audit import AuditLog
from ingest.store.orders.documents import DocumentSelection
from ingest.store.orders.history import HistoryStore
from ingest.store.pool import Pool

REMAP = "orders.remap"


async def remap_orders(
    backends: Backends,
    decoder: Decoder,
    selection: DocumentSelection,
    report: RemapReport,
    actor: str,
    *,
    identify: Identify = document_id,
    calls: RemapCalls | None = None,
) -> None:
    """Rebuild the selected orders. See `remap`.

    Raises:
        StoreUnavailable: PostgreSQL cannot be used right now.
    """
    calls, selection = calls or RemapCalls(), replace(selection, orders=ending_now(selection.orders))
    async with Pool.open(backends.postgres_dsn, size=1) as pool:
        history = HistoryStore(pool, backends.source)
        recorded = recorded_selection(selection)
        async with audited(AuditLog(pool, backends.source), actor, REMAP, recorded) as operation:

            async def on_portion(position: OrderPosition, changed: Sequence[str]) -> None:
                operation.count = report.changed + report.inserted
                if backends.keeps_history and changed:
                    await history.add_operation(changed, HistoryEvent.REMAPPED, actor)
                await calls.on_portion(position, changed)

            observed = replace(calls, on_portion=on_portion)
            dsn, source = backends.postgres_dsn, backends.source
            await remap(dsn, source, decoder, selection, report, identify=identify, calls=observed)


def recorded_selection(selection: DocumentSelection) -> dict[str, object]:
    """Return a selection for the audit log."""
    period = {"fetched_from": selection.since, "fetched_to": selection.until}
    times = {name: moment.isoformat() for name, moment in period.items() if moment is not None}
    return selection.orders.as_object() | times
