"""The sources of one worker process: their shared parts, their workers, and the changes of the sources file."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from ingest.flow.shutdown import Shutdown
from ingest.flow.worker import Worker
from ingest.operations.leased import while_renewed
from ingest.process.lifecycle import unless
from ingest.queue.operate.service_reports import ServiceReports
from ingest.services.configured_sources import ConfiguredSource, checked_source
from ingest.services.reporting import Reporting
from ingest.services.worker_parts import open_worker
from ingest.services.workers.shared_parts import SharedParts, shared_parts
from ingest.services.workers.source_workers import SourceWorkers
from ingest.services.workers.sources_reload import Published
from ingest.settings.packed import LoadedSettings
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.shared_metrics import SharedMetrics

if TYPE_CHECKING:
    from ingest.settings import Settings

# Seconds between two looks for a changed sources file: at one number in shared memory.
_LOOK_EVERY = 1.0


class ProcessSources:
    """The sources of the process in `slot`.

    Args:
        loaded: the settings of the process and its sources at the start of the command.
        configured: the sources that can be used.
        published: returns changes.
        shared_metrics: of the processes.
        name: of the consumers of this process.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        configured: Mapping[str, ConfiguredSource],
        published: Published,
        shared_metrics: SharedMetrics,
        slot: int,
        name: str,
    ) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._configured = configured
        self._published = published
        self._shared_metrics = shared_metrics
        self._slot = slot
        self._name = name
        self._number = 0

    async def run(self, shutdown: Shutdown, on_open: Callable[[], None]) -> None:
        """Run the workers until a stop is requested. `on_open` is called whenever the worker of a source is open."""
        async with AsyncExitStack() as stack:
            shared = await unless(
                shutdown.requested, stack.enter_async_context(shared_parts(self._settings, self._name))
            )
            if shared is None:
                return

            def opened(settings: "Settings") -> AbstractAsyncContextManager[Worker]:
                return self._opened(settings, shared)

            self._number, loaded = self._published(0) or (0, self._loaded)
            sources = loaded.sources
            record = ServiceReports(shared.queue.control, self._settings.stream, self._settings.group)
            reporting = Reporting(record, "ingest worker", self._name)
            reporting.reject(loaded.rejected)
            # A process that was killed in this slot may have run sources that are removed now.
            for name in self._shared_metrics.sources():
                if name not in sources:
                    self.remove(name)
            workers = SourceWorkers(opened, shutdown, on_open, self)
            # A bug there ends the process, which the supervisor starts again.
            work = while_renewed(workers.run(sources, partial(self._changed, reporting)), shared.controls.run())
            async with reporting.running():
                await while_renewed(work, shared.jobs.run())

    async def _changed(self, reporting: Reporting) -> "Mapping[str, Settings]":
        """Wait until other sources are published, and return them."""
        # Another process publishes, so that this one has no event to wait for.
        while (published := self._published(self._number)) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_EVERY)
        self._number, loaded = published
        reporting.reject(loaded.rejected)
        return loaded.sources

    @asynccontextmanager
    async def _opened(self, settings: "Settings", shared: SharedParts) -> AsyncIterator[Worker]:
        known = self._configured.get(settings.source)
        if known is not None and known.settings == settings:
            source = known.source
        else:
            # Compiling a mapping takes tens of milliseconds.
            source = await asyncio.to_thread(checked_source, settings)
        metrics = WorkerMetrics.on(self._shared_metrics, self._slot, source.name)
        async with open_worker(settings, source, metrics, shared) as worker:
            yield worker

    # -- metrics: `ingest.services.workers.source_workers.SourceMetrics` ----------------------------------------------

    def clear(self, source: str) -> None:
        """See `SourceMetrics`."""
        self._shared_metrics.clear_source(self._slot, source)

    def remove(self, source: str) -> None:
        """See `SourceMetrics`."""
        self._shared_metrics.remove_source(self._slot, source)
