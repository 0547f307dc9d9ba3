"""The service's own worker, on a queue, an external API and a table in memory: it reads as many as it has free slots.

Everything between the seams is the real flow, with the service's default settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.bench.backpressure.memory import MemoryQueue, MemoryStore, SleepingApi
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit_breaker import CircuitBreaker
from ingest.flow.clock import SharedClock
from ingest.flow.handler import Handler, Patience
from ingest.flow.intake import Intake
from ingest.flow.lease import Leases
from ingest.flow.limit import ConcurrencyLimit
from ingest.flow.maintenance import Maintenance
from ingest.flow.outage_report import CircuitReport
from ingest.flow.pacing import Pacing
from ingest.flow.reaper import Reaper
from ingest.flow.settlement import Settlement
from ingest.flow.shutdown import Shutdown
from ingest.flow.worker import Worker
from ingest.settings import Settings
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls

_CALM = 3


async def run(calls: Calls, limit: int) -> None:
    """Make all calls, as fetches of orders; done when the last is acked and the worker has stopped."""
    setup_logs("json", "error")
    shutdown = Shutdown(_default("shutdown_grace"))
    queue = MemoryQueue(len(calls), shutdown)
    await _worker(queue, SleepingApi(calls), limit).run(shutdown)


def _worker(queue: MemoryQueue, api: SleepingApi, limit: int) -> Worker:
    """As `ingest.app` builds it."""
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    clock = SharedClock()
    leases = Leases(queue, _default("claim_idle"), _default("heartbeat_ttl"), clock)
    circuit = CircuitBreaker(api.fetch_once, metrics.circuit_open, limit)
    pacing = Pacing()
    slots = ConcurrencyLimit(limit, metrics.concurrency_limit, pacing)
    reaper = Reaper(queue, leases, metrics.redeliveries)
    buffer = BufferLimit(int(_default("batch_rows")), int(_default("batch_bytes")))
    patience = Patience(int(_default("max_attempts")), int(_default("max_deliveries")))
    return Worker(
        queue,
        Intake(queue, leases, reaper, calm=_CALM),
        Handler(api, patience, circuit, slots, buffer),
        Settlement(queue, MemoryStore(), leases, metrics, buffer, now=clock.now),
        leases,
        Maintenance(queue, leases, _default("claim_idle")),
        circuit,
        slots,
        pacing,
        in_flight=metrics.in_flight,
        report=CircuitReport(queue, clock.now),
    )


def _default(setting: str) -> float:
    return float(Settings.model_fields[setting].default)
