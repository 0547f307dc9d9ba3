"""The history of orders in a worker process, if it is kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.store.connections.pool import Pool
from ingest.store.connections.shared_connections import SharedConnections
from ingest.store.orders.history import HistoryStore

if TYPE_CHECKING:
    from ingest.settings import Settings


@asynccontextmanager
async def open_history(settings: "Settings", shared: SharedConnections | None) -> AsyncIterator[HistoryStore | None]:
    """Open the history of a source, or return None if it is not kept.

    Args:
        settings: of the source.
        shared: connections that other sources use as well. None to open one, because batches of orders must not wait for it.
    """
    if not settings.history:
        yield None
    elif shared is not None:
        yield HistoryStore(shared.of_source(), settings.source)
    else:
        async with Pool.open(settings.postgres_dsn.get_secret_value(), size=1) as pool:
            yield HistoryStore(pool, settings.source)
