"""Opens the quota of a source, and its bulk requests on a client."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from ingest.flow.availability import until_ready
from ingest.flow.clock import steady
from ingest.flow.pace.pace import Pace
from ingest.flow.ports import Upstream
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.quota import FleetQuotaClient
from ingest.sources.documents import with_parts
from ingest.sources.source import Source
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.tracing.port import Tracing
from ingest.upstream.bulk.bulk import BulkUpstream
from ingest.upstream.bulk.missing_orders import MissingOrders
from ingest.upstream.bulk.traced_bulk import TracedCalls, TracedRequests
from ingest.upstream.client import UpstreamClient
from ingest.upstream.quota.quota import FleetQuota


class Fetching(msgspec.Struct, frozen=True):
    """How the orders of a source are fetched.

    Attributes:
        bulk: combines requests for orders. None without a list endpoint.
        upstream: fetches orders, with their parts.
    """

    bulk: BulkUpstream | None
    upstream: Upstream


@asynccontextmanager
async def open_quota(
    source: Source,
    connections: QueueConnections,
    metrics: WorkerMetrics,
    now: Callable[[], datetime],
    on_exhausted: Callable[[float], None],
) -> AsyncIterator[tuple[FleetQuotaClient, FleetQuota | None]]:
    """Open the pauses of the fleet, and the quota if the source declares one. Its lease ends when the block is left.

    Its leases use the `connections`. For `now` and `on_exhausted`, see `FleetQuota`.

    Raises:
        UserError: if there is a quota, and Redis denies access to its key.
    """
    client = FleetQuotaClient.on(connections, source.quota_name, source.quota)
    if not source.has_quota:
        yield client, None
        return
    await until_ready("redis", client.pause, 0.0)
    quota = FleetQuota(
        client,
        source.quota,
        source.limits.connect + source.limits.total,
        metrics.rate_limit_wait,
        metrics.upstream_quota,
        now,
        on_exhausted,
        clock=steady,
    )
    try:
        yield client, quota
    finally:
        await quota.end()


@asynccontextmanager
async def fetching_by(
    client: UpstreamClient, source: Source, pace: Pace | None = None, tracing: Tracing | None = None
) -> AsyncIterator[Fetching]:
    """Open bulk requests at this pace on a client, if the source declares a list endpoint. `tracing` records them."""
    if source.bulk is None:
        yield Fetching(None, with_parts(client, client, source.mapping, source.body_limit))
        return
    requests = client if tracing is None else TracedRequests(client, tracing)
    async with BulkUpstream(requests, source.bulk, pace) as bulk:
        calls: Upstream = bulk if tracing is None else TracedCalls(bulk, tracing)
        if source.endpoint.order_url:
            calls = MissingOrders(calls, client.fetch_page)
        yield Fetching(bulk, with_parts(calls, client, source.mapping, source.body_limit))
