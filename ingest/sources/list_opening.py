"""Opens the list of orders of a source for one command, within the quota that the workers share."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.domain.errors import ConfigError
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.settings.names import setting_name
from ingest.sources.from_settings import check_files, source_of
from ingest.sources.opening import open_quota
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import require
from ingest.upstream.lists.order_list import HttpOrderList
from ingest.upstream.session import utc_now

if TYPE_CHECKING:
    from ingest.settings import Settings


@asynccontextmanager
async def open_order_list(settings: "Settings", environ: Mapping[str, str]) -> AsyncIterator[HttpOrderList]:
    """Open the list of the source that the settings describe, with the proxies of the environment.

    Raises:
        ConfigError: the source has no list, or its settings cannot be used.
        UserError: Redis denies access to the key of the quota.
    """
    require(settings.upstream_client)
    source = source_of(settings, environ)
    if source.order_list is None:
        raise ConfigError(
            f"{setting_name(settings.source, 'order_list')} is missing: it describes the shop's list of orders"
        )
    check_files(source)
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    async with (
        QueueConnections.open(settings.redis_url.get_secret_value()) as connections,
        open_quota(source.for_list, connections, metrics, utc_now, lambda _: None) as (_, quota),
        HttpOrderList.open(source.order_list, metrics.upstream_request, utc_now, quota) as listed,
    ):
        if quota is None:
            yield listed
            return
        leasing = asyncio.create_task(quota.run())
        try:
            yield listed
        finally:
            leasing.cancel()
            await asyncio.wait([leasing])
