"""Previews which fields of stored orders a remap would change, by a sample of them. Changes nothing."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.operations.backends import Backends
from ingest.operations.rebuilding.remap import Decoder, Identify, remap
from ingest.operations.rebuilding.remap_report import RemapReport
from ingest.store.connections.pool import Pool
from ingest.store.orders.documents import DocumentSelection
from ingest.store.orders.order_reading import OrderReader

_SECONDS = 5.0


async def preview_remap(
    backends: Backends,
    selection: OrderFilter,
    open_decoder: Callable[[], AbstractAsyncContextManager[tuple[Decoder, Identify]]],
    *,
    sample: int,
) -> RemapReport:
    """Rebuild the first stored orders that match, and compare each with its row.

    Args:
        backends: the database, and the source of the orders.
        selection: the orders.
        open_decoder: opens the mapping and the transform of the source.
        sample: most orders to rebuild.

    Raises:
        StoreTooSlow: too many rows had to be examined.
        StoreUnavailable: PostgreSQL cannot be used right now.
        ConfigError: the mapping or the transform cannot be loaded.
    """
    report = RemapReport()
    async with Pool.open(backends.postgres_dsn, size=1, timeout=_SECONDS) as pool:
        positions = await OrderReader(pool, backends.source).ids(selection, OrderPosition(), sample)
    if positions:
        chosen = DocumentSelection(OrderFilter(ids=tuple(position.order_id for position in positions)))
        async with open_decoder() as (decoder, identify):
            await remap(
                backends.postgres_dsn, backends.source, decoder, chosen, report, identify=identify, dry_run=True
            )
    return report
