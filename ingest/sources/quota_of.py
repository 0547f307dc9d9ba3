"""What a worker process has in common with all others that call the same external API, put together from settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ingest.domain.fetch.quota import QuotaLimits
from ingest.flow.availability import until_ready
from ingest.flow.clock import steady
from ingest.queue.consume.quota import FleetQuotaClient
from ingest.telemetry.metrics import WorkerMetrics
from ingest.upstream.quota.quota import FleetQuota

if TYPE_CHECKING:
    from ingest.settings import Settings

# Of a second's requests, if no burst is set: enough to make up for short delays. The rate is less by as much, so that within any
# second no more than the rate is granted.
_BURST_SHARE = 0.01


def quota_name(settings: "Settings") -> str:
    """The name of the quota: as set, or the external API's host, with its port if the URL has one."""
    return settings.upstream_quota or urlsplit(settings.upstream_url).netloc.rpartition("@")[2].lower()


def quota_limits(settings: "Settings") -> QuotaLimits:
    """The limits over all processes."""
    rate, burst = settings.upstream_rate, settings.upstream_burst
    if not burst:
        rate, burst = (1 - _BURST_SHARE) * rate, max(1, int(_BURST_SHARE * rate))
    return QuotaLimits(rate, burst, settings.upstream_concurrency)


@asynccontextmanager
async def open_quota(
    settings: "Settings", metrics: WorkerMetrics, now: Callable[[], datetime], on_exhausted: Callable[[float], None]
) -> AsyncIterator[tuple[FleetQuotaClient, FleetQuota | None]]:
    """The pauses of the fleet, and its quota if one is set; its lease ends when the block is left.

    Args:
        settings: name and limits.
        metrics: get what is granted.
        now: the clock, for an API that names times and does not tell its own.
        on_exhausted: called with the seconds for which the API's quota is used up, by its headers.

    Raises:
        UserError: if a quota is set, and Redis refuses us its key.
    """
    limits = quota_limits(settings)
    url = settings.redis_url.get_secret_value()
    async with FleetQuotaClient.open(url, quota_name(settings), limits) as client:
        if not (limits.rate or limits.concurrency):
            yield client, None
            return
        await until_ready("redis", client.pause, 0.0)
        quota = FleetQuota(
            client,
            limits,
            settings.upstream_connect_timeout + settings.upstream_timeout,
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
