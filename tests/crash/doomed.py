"""A real supervisor with real workers in which one order kills its process: `python doomed.py MOMENT`, settings by environment.

At MOMENT (`before_fetch` or `after_fetch`) of an order whose name begins with `poison`, its process gets SIGSEGV, as by a bug in C code.
"""

import asyncio
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.flow.shutdown import Shutdown
from ingest.process.child import Child
from ingest.process.lifecycle import stop_on
from ingest.process.supervisor import Supervisor
from ingest.services.worker import note_death
from ingest.services.worker_parts import Classes
from ingest.settings import Settings, load_settings
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.client import UpstreamClient

# A program's path begins with its own folder, and the tests' helpers are in the one above.
sys.path.append(str(Path(__file__).parents[1]))

from opened_worker import opened_worker

POISON = "poison"


def strike(order_id: str, moment: str) -> None:
    """End the process if it is this order's moment."""
    if order_id.startswith(POISON) and moment == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGSEGV)


class Upstream(UpstreamClient):
    """Dies around the fetch of the poison."""

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        strike(request.order_id, "before_fetch")
        fetched = await super().fetch(request)
        strike(request.order_id, "after_fetch")
        return fetched

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        strike(request.order_id, "before_fetch")
        return await super().fetch_once(request)


def worker(settings: Settings, shared_metrics: SharedMetrics, slot: int, lifeline: int) -> int:
    """One worker process, as `ingest.services.worker` makes it but for the part that dies."""

    async def main() -> None:
        shutdown = Shutdown(settings.shutdown_grace)
        stop_on(lifeline, shutdown.request)
        metrics = WorkerMetrics.on(shared_metrics, slot)
        async with opened_worker(settings, metrics, f"doomed-{slot}", Classes(upstream=Upstream)) as worker:
            await worker.run(shutdown)

    asyncio.run(main())
    return 0


def main() -> int:
    """Run until SIGTERM, as `ingest worker` does."""
    settings = load_settings()
    setup_logs("json", "info")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shared_metrics = worker_shared_metrics(settings.processes)
    children = [
        Child(
            f"worker-{slot}",
            partial(worker, settings, shared_metrics, slot),
            on_death=partial(note_death, shared_metrics, slot),
        )
        for slot in range(settings.processes)
    ]
    return Supervisor(children, settings.shutdown_grace).run()


if __name__ == "__main__":
    sys.exit(main())
