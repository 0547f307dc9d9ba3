"""Serves /metrics (the workers' own metrics and the state of the queue) and /healthz."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.queue.connection import control_client
from ingest.queue.monitor import Monitor
from ingest.settings import Settings
from ingest.telemetry.collectors import BuildCollector, QueueCollector, SharedMetricsCollector
from ingest.telemetry.liveness import Liveness
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import SharedMetrics

_log = get_logger("exposition")


@asynccontextmanager
async def serving(settings: Settings, shared_metrics: SharedMetrics, listener: socket.socket) -> AsyncIterator[None]:
    """Serve on `listener` while the block runs."""
    async with control_client(settings.redis_url.get_secret_value()) as client:
        monitor = Monitor(client, settings.stream, settings.group)
        application = web.Application()
        application.router.add_get("/metrics", partial(_metrics, shared_metrics, monitor, settings.stream))
        application.router.add_get("/healthz", partial(_healthz, Liveness(shared_metrics, settings.heartbeat_ttl)))
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        yield
        await runner.cleanup()


async def _metrics(shared_metrics: SharedMetrics, monitor: Monitor, stream: str, request: web.Request) -> web.Response:
    registry = CollectorRegistry()
    registry.register(BuildCollector())
    registry.register(SharedMetricsCollector(shared_metrics))
    try:
        registry.register(QueueCollector(stream, await monitor.state()))
    except (QueueUnavailable, UserError) as error:
        # The workers' own metrics are still exported; the gauges of the queue are absent rather than out of date.
        _log.warning("unavailable", server="redis", error=str(error))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return web.Response(body=encode(registry), headers={"Content-Type": content_type})


async def _healthz(liveness: Liveness, _: web.Request) -> web.Response:
    # About the processes alone: one that waits for a server is healthy, and a restart would not help.
    if stalled := liveness.stalled():
        names = ", ".join(f"worker-{slot}" for slot in stalled)
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"stalled: {names}\n")
    return web.Response(text="ok\n")
