"""The composition root of `ingest exporter`: one process that serves the state of the queue while no worker runs."""

import asyncio
import socket
from functools import partial

from ingest.domain.errors import ConfigError
from ingest.probes.metrics_page import reading_queue, serving
from ingest.process.lifecycle import listen, run_to_the_end, stop_on_signals
from ingest.settings import Settings
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import SharedMetrics

_log = get_logger("exporter")


def run_exporter(settings: Settings) -> int:
    """`ingest exporter`: serve until SIGTERM or Ctrl-C, and return the exit code."""
    if not settings.metrics_port:
        raise ConfigError("INGEST_METRICS_PORT: must not be 0, because the exporter only listens there")
    advice = "set INGEST_METRICS_HOST or INGEST_METRICS_PORT"
    listener = listen("/metrics", settings.metrics_host, settings.metrics_port, advice)
    return run_to_the_end(partial(_serve, settings, listener))


async def _serve(settings: Settings, listener: socket.socket) -> None:
    stop = asyncio.Event()
    stop_on_signals(lambda _: stop.set())
    shared_metrics = SharedMetrics((LOOP_LAG,), 1)
    lag = shared_metrics.series(0, LOOP_LAG)
    liveness = ProcessLiveness(shared_metrics, settings.heartbeat_ttl)
    with watching_loop(lag, settings.loop_block_warning):
        async with (
            reading_queue(settings) as queue,
            serving(shared_metrics, listener, "exporter", liveness, queue),
        ):
            _log.info("exporting", queue=settings.stream, group=settings.group)
            await stop.wait()
