"""Requests some orders of a source as a worker does, for a preview."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import document_of
from ingest.domain.orders.plain_order import StorableOrder
from ingest.operations.rebuilding.refetch_preview import FetchOrders
from ingest.sources.documents import open_decode
from ingest.sources.from_settings import source_of
from ingest.sources.opening import fetching_by
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient, require

if TYPE_CHECKING:
    from ingest.settings import Settings


@asynccontextmanager
async def fetching_orders(settings: "Settings", environ: Mapping[str, str]) -> AsyncIterator[FetchOrders]:
    """Open the external API of a source. The few requests of a preview do not count in the quota of the fleet.

    Args:
        settings: of the source, with its credential.
        environ: the environment of the process, with proxies.

    Raises:
        ConfigError: settings do not fit together, or a file that they name cannot be used.
    """
    require(settings.upstream_client)
    source = source_of(settings, environ)
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    async with (
        UpstreamClient.open(source.endpoint, source.limits, metrics.upstream_request) as client,
        fetching_by(client, source) as fetching,
        open_decode(source.mapping, source.transform, metrics) as decode,
    ):

        async def fetch(order_id: str) -> tuple[StorableOrder, ...]:
            request = FetchRequest(order_id)
            return await decode.decode(document_of(await fetching.upstream.fetch(request)), request)

        yield fetch
