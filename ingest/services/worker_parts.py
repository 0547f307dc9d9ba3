"""The composition of a worker, from settings and ports, or from settings only.

Public: the service itself, its tests and its benches build workers here, each with the ports that it needs.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.domain.operating.source_state import ProcessReport
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.clock import steady
from ingest.flow.deliver.document_reader import DocumentReader, GrowingDocumentReader
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.gate import Gate
from ingest.flow.deliver.handler import AttemptLimits, Handler, not_recorded
from ingest.flow.deliver.order_requests import OrderRequests
from ingest.flow.deliver.scheduler import Scheduler
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.group.maintenance import GroupMaintenance
from ingest.flow.held import Held
from ingest.flow.known_orders import canary_request
from ingest.flow.outage_recovery import OutageRecovery
from ingest.flow.pace.fleet_pause import FleetPause
from ingest.flow.ports import Decode, FleetPart
from ingest.flow.read.reader import Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.reasons import Reasons
from ingest.flow.settle.late_orders import LateOrders
from ingest.flow.settle.recorder import Recorder
from ingest.flow.settle.settlement import Settlement
from ingest.flow.worker import Parts, Worker
from ingest.services.workers.shared_parts import Limits, SharedLimits, SharedParts, shared_parts
from ingest.services.workers.traced_worker import traced_ports
from ingest.services.workers.worker_ports import Classes, Ports, Queue, open_ports
from ingest.sources.source import Source
from ingest.telemetry.metrics import WorkerMetrics

if TYPE_CHECKING:
    from ingest.settings import Settings

__all__ = [
    "Classes",
    "Limits",
    "Ports",
    "Queue",
    "SharedLimits",
    "SharedParts",
    "build_worker",
    "open_worker",
    "shared_parts",
]

# Deliveries above which an entry that was never settled is isolated: its workers may have died of it.
_ISOLATE_ABOVE = 3
# Documents for each transform process, one in it and the others waiting for it, or for buffer space for its results.
_TURNS = 4


def build_worker(
    settings: "Settings",
    source: Source,
    ports: Ports,
    metrics: WorkerMetrics,
    limits: Limits,
    *,
    clock: Callable[[], float] = time.monotonic,
    lease_clock: Callable[[], float] = steady,
) -> Worker:
    """Build a worker on these ports.

    Args:
        settings: limits and times of the process.
        source: the source of the orders.
        ports: connections of the worker.
        metrics: counters of the source.
        limits: shares of the limits of the process.
        clock: monotonic seconds.
        lease_clock: seconds for heartbeats and leases, including the time that the machine sleeps, as in `ports.clock`.
    """
    traces = None
    if ports.tracing is not None:
        ports, traces = traced_ports(ports, ports.tracing, source.name)
    queue, pace = ports.queue, ports.pace
    held = Held(clock=lease_clock, traces=traces)
    versions = settings.versions
    isolation = limits.isolation.of_source(held)
    heartbeats = Heartbeats(
        queue.liveness,
        held,
        settings.claim_idle,
        settings.heartbeat_ttl,
        ports.clock,
        # Made below from parts that need heartbeats.
        lambda: ProcessReport(reasons.current(), versions),
        clock=lease_clock,
    )
    circuit = CircuitBreaker(
        canary_request(ports.upstream, ports.decode),
        metrics.circuit_open,
        metrics.circuit_unproven,
        ports.store.some_stored,
        source.requests,
        clock=clock,
    )
    gate = Gate(circuit, pace, ports.controls)
    buffer = BufferLimit(limits.rows, limits.size)
    scheduler = Scheduler(
        held, pace, gate, metrics.in_flight, source.concurrency, limits.slots, buffer.fitting, clock=clock
    )
    recorder = None
    if ports.history is not None:
        recorder = Recorder(ports.history, ports.name, settings.history, heartbeats.leads)
    settlement = Settlement(
        queue.settling, ports.store, held, heartbeats, metrics, buffer, recorder, now=ports.clock.now, clock=clock
    )
    servers = [*settlement.servers, *([] if recorder is None else [recorder.availability])]
    reasons = Reasons(
        circuit, pace.pauses, servers, ports.unanswered_for, ports.redis_failing, ports.clock.now, clock=clock
    )
    handler = Handler(
        ports.upstream,
        _document_reader(source, ports.decode, buffer, metrics),
        AttemptLimits(settings.max_attempts, settings.max_deliveries),
        circuit,
        pace,
        on_replaced=metrics.texts_replaced.inc,
        on_outdated=metrics.outdated_documents.inc,
        since=recorder.since if recorder is not None else not_recorded,
    )
    executor = Executor(handler, settlement, held, scheduler, gate, circuit, isolation)
    reader = Reader(
        queue.reading,
        Reclaimer(queue.reading, held, metrics.redeliveries, clock=clock),
        settlement.moves.release_unprocessed,
        heartbeats,
        # Leaves an isolated entry a few deliveries before it counts as poison.
        isolate_above=min(_ISOLATE_ABOVE, max(1, settings.max_deliveries - 2)),
        isolation=isolation,
    )
    shared: list[FleetPart] = [*ports.shared, LateOrders(queue.maintenance, ports.store, heartbeats.leads)]
    if recorder is not None:
        shared.append(recorder)
    if ports.jobs is not None:
        shared.append(ports.jobs(OrderRequests(ports.upstream, ports.decode, gate, pace)))
    if ports.pauses is not None:
        shared.append(FleetPause(ports.pauses, pace.pauses, held, clock=clock))
    return Worker(
        Parts(
            liveness=queue.liveness,
            held=held,
            scheduler=scheduler,
            reader=reader,
            executor=executor,
            settlement=settlement,
            circuit=circuit,
            outage=OutageRecovery(circuit, pace, reader, executor, settlement.moves, held, gate),
            heartbeats=heartbeats,
            maintenance=GroupMaintenance(queue.maintenance, heartbeats, settings.claim_idle, clock=clock),
            controls=ports.controls,
            pace=pace,
            fleet=shared,
        )
    )


def _document_reader(source: Source, decode: Decode, buffer: BufferLimit, metrics: WorkerMetrics) -> DocumentReader:
    not_kept = metrics.documents_not_kept if source.keeps_documents else None
    if source.transform is None:
        return DocumentReader(decode, buffer, not_kept)
    return GrowingDocumentReader(decode, buffer, not_kept, turns=_TURNS * source.transform.processes)


@asynccontextmanager
async def open_worker(
    settings: "Settings",
    source: Source,
    metrics: WorkerMetrics,
    shared: SharedParts,
    classes: Classes | None = None,
) -> AsyncIterator[Worker]:
    """Open a worker with its connections. See `open_ports`."""
    async with open_ports(settings, source, metrics, shared, classes) as ports:
        with shared.limits.of_source() as limits:
            yield build_worker(settings, source.tuned(ports.controls.tuning), ports, metrics, limits)
