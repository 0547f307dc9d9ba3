"""Workers that the service's own assembly builds, on fakes and in virtual time."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fakes.group import MemoryGroup
from fakes.queue import MemoryQueue
from fakes.store import MemoryStore
from fakes.upstream import MemoryUpstream
from fakes.virtual_time import now, until

from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.clock import SharedClock
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.ports import FleetPart
from ingest.flow.shares import Shares
from ingest.flow.shutdown import Shutdown
from ingest.services.worker_parts import Ports, Queue, SharedLimits, build_worker
from ingest.settings import Settings, load_settings
from ingest.sources.from_settings import source_of
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import Gauge
from ingest.upstream.quota.quota import FleetQuota


def metrics() -> WorkerMetrics:
    """Metrics of one process."""
    return WorkerMetrics.on(worker_shared_metrics(1), 0)


def gauge() -> Gauge:
    """A gauge that is never read."""
    return Gauge(memoryview(array("d", [0.0])), 0)


def buffer_limit(rows: int, size: int) -> BufferLimit:
    """The space of the only source."""
    return BufferLimit(Shares(rows).add(), Shares(size).add())


@dataclass
class RunningWorker:
    """A worker that runs in this loop."""

    task: "asyncio.Task[None]"
    shutdown: Shutdown

    async def stop(self, *, hurry: bool = False) -> None:
        """Ask it to stop, and wait until it has."""
        self.shutdown.request("test")
        if hurry:
            self.shutdown.overdue.set()
        async with asyncio.timeout(600):
            await self.task

    async def die(self) -> None:
        """Drop everything immediately, like a killed process."""
        self.task.cancel()
        await asyncio.wait([self.task])


class Workplace:
    """The environment of workers in virtual time: a group, a table and an external API."""

    def __init__(self) -> None:
        self.group = MemoryGroup(now)
        self.store = MemoryStore()
        self.upstream = MemoryUpstream(now)

    @asynccontextmanager
    async def worker(self, name: str = "one", **changed: Any) -> AsyncIterator[RunningWorker]:
        """A running worker with the default settings except for `changed`. It dies at the end of the block."""
        async with self.run_worker(name, load_settings(**changed)) as running:
            yield running

    @asynccontextmanager
    async def run_worker(
        self, name: str, settings: Settings, shared: SharedLimits | None = None
    ) -> AsyncIterator[RunningWorker]:
        """The same with these settings. The workers of one process have `shared` limits."""
        queue = self.reach(name, MemoryQueue(self.group, name, keeps_results=settings.results == "on"))
        measured = metrics()
        quota = self.quota_of(name)
        pace = Pace(settings.concurrency, measured.concurrency_limit, Pauses(clock=now), quota, clock=now)
        clock = SharedClock(monotonic=now)
        ports = Ports(
            Queue(queue, queue, queue, queue),
            self.reach(name, self.store),
            self.fetching(self.reach(name, self.upstream), quota, clock),
            pace,
            clock=clock,
            shared=(*(() if quota is None else (quota,)), *self.parts_of(name, settings, pace, clock)),
        )
        with (shared or SharedLimits.of(settings)).of_source() as limits:
            source = source_of(settings, {})
            worker = build_worker(settings, source, ports, measured, limits, clock=now, lease_clock=now)
            shutdown = Shutdown(settings.shutdown_grace)
            running = RunningWorker(asyncio.create_task(worker.run(shutdown)), shutdown)
            try:
                yield running
            finally:
                await running.die()
                if quota is not None:
                    await quota.end()
                if not running.task.cancelled():
                    running.task.result()  # a worker that failed fails its test

    def reach(self, name: str, port: Any) -> Any:
        """The port as a worker reaches it, which may be over a network."""
        del name
        return port

    def quota_of(self, name: str) -> FleetQuota | None:
        """The worker's part of a quota."""
        del name
        return None

    def parts_of(self, name: str, settings: Settings, pace: Pace, clock: SharedClock) -> Sequence[FleetPart]:
        """Further parts of the worker."""
        del name, settings, pace, clock
        return ()

    def fetching(self, upstream: Any, quota: FleetQuota | None, clock: SharedClock) -> Any:
        """The API within the quota, and by the clock of the process."""
        del quota, clock
        return upstream

    async def finished(self, within: float = 60.0) -> None:
        """Wait until nothing is left to do."""
        await until(self.group.is_empty, within)
