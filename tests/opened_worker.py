"""Opens the worker of the only source outside `ingest worker`, so that a test may replace its classes and its clock."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ingest.flow.clock import SharedClock
from ingest.flow.worker import Worker
from ingest.services.worker_parts import Classes, open_worker, shared_parts
from ingest.settings import Settings
from ingest.sources.from_settings import source_of
from ingest.telemetry.metrics import WorkerMetrics


@asynccontextmanager
async def opened_worker(
    settings: Settings,
    metrics: WorkerMetrics,
    name: str,
    classes: Classes | None = None,
    clock: SharedClock | None = None,
) -> AsyncIterator[Worker]:
    """A worker that follows its controls and searches for jobs."""
    classes = classes or Classes()
    async with shared_parts(settings, name, clock=clock, batch_timeout=classes.store.timeout) as shared:
        running = [asyncio.create_task(part.run()) for part in (shared.controls, shared.jobs)]
        try:
            async with open_worker(settings, source_of(settings, os.environ), metrics, shared, classes) as worker:
                yield worker
        finally:
            for task in running:
                task.cancel()
