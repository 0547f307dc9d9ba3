"""The composition root of `ingest exporter`: one process that serves the state of the queue while no worker runs."""

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import chosen_sources
from ingest.files.watch import WatchedFiles, watching
from ingest.probes.metrics_page import reading_queues, serving
from ingest.process.lifecycle import listen, run_to_the_end, stop_on_signals
from ingest.settings import Settings
from ingest.settings.source_file import source_names
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.logs import get_logger
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import SharedMetrics

_log = get_logger("exporter")


def run_exporter(settings: Settings, only: Sequence[str] | None = None) -> int:
    """`ingest exporter`: serve until SIGTERM or Ctrl-C, and return the exit code.

    Args:
        settings: of the process.
        only: names of sources. None for all sources of the file, including those that are added later.
    """
    if not settings.metrics_port:
        raise ConfigError("INGEST_METRICS_PORT: must not be 0, because the exporter only listens there")
    advice = "set INGEST_METRICS_HOST or INGEST_METRICS_PORT"
    sources = ExportedSources(settings, only)
    listener = listen("/metrics", settings.metrics_host, settings.metrics_port, advice)
    return run_to_the_end(partial(_serve, settings, sources, listener))


async def _serve(settings: Settings, sources: "ExportedSources", listener: socket.socket) -> None:
    stop = asyncio.Event()
    stop_on_signals(lambda _: stop.set())
    shared_metrics = SharedMetrics((LOOP_LAG,), 1)
    lag = shared_metrics.series(0, LOOP_LAG)
    liveness = ProcessLiveness(shared_metrics, settings.heartbeat_ttl)
    with watching_loop(lag, settings.loop_block_warning):
        async with (
            watching(sources.files()),
            reading_queues(settings, lambda: sources.names) as queues,
            serving(shared_metrics, listener, "exporter", liveness, queues),
        ):
            _log.info("exporting", queue=settings.stream, group=settings.group, sources=len(sources.names))
            await stop.wait()


class ExportedSources:
    """The names of the exported sources, which follow the sources file.

    Args:
        settings: of the process.
        only: names of sources. None for all.

    Raises:
        ConfigError: the file cannot be used, or contains no source of one of the names.
    """

    def __init__(self, settings: Settings, only: Sequence[str] | None) -> None:
        self._settings = settings
        self._only = only
        self.names = self._read()

    def files(self) -> Sequence[WatchedFiles]:
        """Return the sources file, if there is one, to be watched."""
        file = self._settings.sources
        return [] if file is None else [WatchedFiles("INGEST_SOURCES", [Path(file)], self._reload)]

    def _read(self) -> list[str]:
        return chosen_sources(self._only, source_names(self._settings))

    async def _reload(self) -> None:
        try:
            self.names = await asyncio.to_thread(self._read)
        except ConfigError as error:
            raise ValueError(str(error)) from error
