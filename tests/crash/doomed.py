"""A real supervisor with real workers in which one order kills its process: `python doomed.py MOMENT`, settings by environment.

At MOMENT (`before_fetch` or `after_fetch`) of an order whose name begins with `poison`, its process gets SIGSEGV, as by a bug in C code.
"""

import asyncio
import os
import resource
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial

from ingest.app import _limits, _note_death, _stop_on, _worker
from ingest.domain.delivery import Fetched
from ingest.flow.clock import SharedClock
from ingest.flow.shutdown import Shutdown
from ingest.flow.worker import BLOCK
from ingest.queue.consumer import Consumer
from ingest.settings import Settings, load_settings
from ingest.store.orders import OrderStore
from ingest.supervisor import Child, Supervisor
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.client import UpstreamClient

POISON = "poison"


def strike(order_id: str, moment: str) -> None:
    """End the process if it is this order's moment."""
    if order_id.startswith(POISON) and moment == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGSEGV)


class Upstream(UpstreamClient):
    """Dies around the fetch of the poison."""

    async def fetch(self, order_id: str) -> Fetched:
        strike(order_id, "before_fetch")
        fetched = await super().fetch(order_id)
        strike(order_id, "after_fetch")
        return fetched

    async def fetch_once(self, order_id: str) -> Fetched:
        strike(order_id, "before_fetch")
        return await super().fetch_once(order_id)


def worker(settings: Settings, shared_metrics: SharedMetrics, slot: int, lifeline: int) -> int:
    """One worker process, as `ingest.app` makes it but for the part that dies."""

    async def main() -> None:
        shutdown = Shutdown(settings.shutdown_grace)
        _stop_on(lifeline, shutdown.request)
        metrics = WorkerMetrics.on(shared_metrics, slot)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(OrderStore.open(settings.postgres_dsn.get_secret_value()))
            consumer = await stack.enter_async_context(
                Consumer.open(
                    settings.redis_url.get_secret_value(), settings.stream, settings.group, f"doomed-{slot}", BLOCK
                )
            )
            await consumer.ensure_group()
            clock = SharedClock()
            upstream = await stack.enter_async_context(
                Upstream.open(settings.upstream_url, None, _limits(settings), metrics.upstream_request, clock.utc)
            )
            await _worker(settings, metrics, consumer, store, upstream, clock).run(shutdown)

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
            on_death=partial(_note_death, shared_metrics, slot),
        )
        for slot in range(settings.processes)
    ]
    return Supervisor(children, settings.shutdown_grace).run()


if __name__ == "__main__":
    sys.exit(main())
