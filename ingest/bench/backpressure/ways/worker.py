"""The service's own worker, which reads as many entries as it has free slots.

Queue, external API and table are in memory. Between these ports, the real flow runs with the default settings.
"""

from ingest.bench.backpressure.calls import Calls
from ingest.bench.backpressure.memory import MemoryQueue, MemoryStore, SleepingApi
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.shutdown import Shutdown
from ingest.services.worker_parts import Ports, Queue, SharedLimits, build_worker
from ingest.settings import Settings
from ingest.sources.from_settings import source_of
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics


async def run(calls: Calls, limit: int) -> None:
    """Make all calls as fetches of orders, and return when the last is acked and the worker has stopped."""
    setup_logs("json", "error")
    # The defaults, independent of the environment.
    settings = Settings.model_construct(concurrency=limit)
    shutdown = Shutdown(settings.shutdown_grace)
    queue = MemoryQueue(len(calls), shutdown)
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    pace = Pace(limit, metrics.concurrency_limit, Pauses())
    ports = Ports(Queue(queue, queue, queue, queue), MemoryStore(), SleepingApi(calls), pace)
    with SharedLimits.of(settings).of_source() as limits:
        await build_worker(settings, source_of(settings, {}), ports, metrics, limits).run(shutdown)
