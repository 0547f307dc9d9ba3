"""Enqueues the orders that a reconciliation has found to be missing or to differ, behind live orders."""

from collections.abc import Callable, Sequence
from itertools import islice

from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.orders.list_reconciliation import DifferenceKind, ListReconciliation
from ingest.operations.audit import audited
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import fill, open_main_lane
from ingest.operations.backfill.pace import BackfillPace
from ingest.operations.declared import ENQUEUE_DIFFERING
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.store.audit import AuditLog
from ingest.store.connections.pool import Pool

_PORTION = 500
MISSING = (DifferenceKind.MISSING, DifferenceKind.OUTDATED)
"""Orders of which the shop has a version that is not stored."""
DIFFERING = (*MISSING, DifferenceKind.TOTAL, DifferenceKind.NOT_COMPARED)
"""All orders of the list that are not proven to be equal."""


async def enqueue_differing(
    backends: Backends,
    ledger: ListLedger,
    report: ListReconciliation,
    actor: str,
    kinds: Sequence[DifferenceKind] = MISSING,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Enqueue the orders with these kinds of differences. Returns how many.

    If the process dies, some are enqueued, and the next reconciliation finds the others.

    Raises:
        StoreUnavailable: the change cannot be recorded, and was not made.
        QueueUnavailable: Redis cannot be used right now, and some orders may be enqueued.
    """
    differences = ledger.differences(kinds)
    pace, done = BackfillPace(None), 0
    selection = {"since": report.since.isoformat(), "until": report.until.isoformat()}
    async with (
        Pool.open(backends.postgres_dsn, size=1) as pool,
        open_main_lane(backends, "reconcile") as lane,
        audited(AuditLog(pool, backends.source), actor, ENQUEUE_DIFFERING, selection) as operation,
    ):
        while portion := list(islice(differences, _PORTION)):
            async for _ in fill(lane, pace, [ListedOrder(each.order_id) for each in portion]):
                pass
            operation.count = done = done + len(portion)
            on_progress(done)
    return done
