"""The composition of a worker, from settings and ports, or from settings only.

Public: the service itself, its tests and its benches build workers here, each with the ports that it needs.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from ingest.domain.orders.plain_order import decode_plain
from ingest.flow.availability import until_ready
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.clock import SharedClock, steady
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.document_reader import DocumentReader, GrowingDocumentReader
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.gate import Gate
from ingest.flow.deliver.handler import AttemptLimits, Handler
from ingest.flow.deliver.scheduler import Scheduler
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.group.maintenance import GroupMaintenance
from ingest.flow.held import Held
from ingest.flow.known_orders import canary_request
from ingest.flow.outage_recovery import OutageRecovery
from ingest.flow.outage_report import OutageReport
from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.fleet_pause import FleetPause
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.ports import Decode, FleetPart, FleetPauses, Liveness, Maintenance, Reading, Settling, Store, Upstream
from ingest.flow.read.reader import BLOCK, Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.settle.settlement import Settlement
from ingest.flow.worker import Parts, Worker
from ingest.queue.consume.consumer import Consumer
from ingest.sources.documents import open_decode
from ingest.sources.opening import fetching_by, open_quota
from ingest.sources.source import Source
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.metrics import WorkerMetrics
from ingest.upstream.client import UpstreamClient

if TYPE_CHECKING:
    from ingest.settings import Settings

# Deliveries above which an entry that was never settled is isolated: its workers may have died of it.
_ISOLATE_ABOVE = 3
# Documents for each transform process, one in it and the others waiting for it, or for buffer space for its results.
_TURNS = 4


class Queue(msgspec.Struct, frozen=True):
    """A consumer of the group, by its ports."""

    reading: Reading
    settling: Settling
    liveness: Liveness
    maintenance: Maintenance


class Ports(msgspec.Struct, frozen=True):
    """The ports of a worker.

    Attributes:
        queue: delivers and settles entries.
        store: stores orders.
        upstream: fetches orders.
        pace: limits the requests of `upstream`.
        decode: decodes documents to orders.
        clock: the queue server's time, with which `upstream` stamps documents.
        pauses: shares pauses of the external API with all processes. If None, each process keeps its own.
        shared: parts that coordinate with other processes while the worker runs.
    """

    queue: Queue
    store: Store
    upstream: Upstream
    pace: Pace
    decode: Decode = msgspec.field(default_factory=lambda: OrderDecoder(decode_plain))
    clock: SharedClock = msgspec.field(default_factory=SharedClock)
    pauses: FleetPauses | None = None
    shared: Sequence[FleetPart] = ()


class Classes(msgspec.Struct, frozen=True):
    """The classes that implement the ports. A test may replace one by a class that counts, waits or dies."""

    consumer: type[Consumer] = Consumer
    store: type[OrderStore] = OrderStore
    upstream: type[UpstreamClient] = UpstreamClient


def build_worker(
    settings: "Settings",
    source: Source,
    ports: Ports,
    metrics: WorkerMetrics,
    *,
    clock: Callable[[], float] = time.monotonic,
    lease_clock: Callable[[], float] = steady,
) -> Worker:
    """Build a worker on these ports.

    Args:
        settings: limits and times of the process.
        source: the source of the orders.
        ports: connections of the worker.
        metrics: counters of the process.
        clock: monotonic seconds.
        lease_clock: seconds for heartbeats and leases, including the time that the machine sleeps, as in `ports.clock`.
    """
    queue, pace = ports.queue, ports.pace
    held = Held(clock=lease_clock)
    heartbeats = Heartbeats(
        queue.liveness, held, settings.claim_idle, settings.heartbeat_ttl, ports.clock, clock=lease_clock
    )
    circuit = CircuitBreaker(
        canary_request(ports.upstream, ports.decode),
        metrics.circuit_open,
        metrics.circuit_unproven,
        ports.store.some_stored,
        source.requests,
        clock=clock,
    )
    gate = Gate(circuit, pace)
    scheduler = Scheduler(held, pace, gate, metrics.in_flight, source.concurrency)
    buffer = BufferLimit(settings.batch_rows, settings.batch_bytes)
    settlement = Settlement(
        queue.settling, ports.store, held, heartbeats, metrics, buffer, now=ports.clock.now, clock=clock
    )
    handler = Handler(
        ports.upstream,
        _document_reader(source, ports.decode, buffer, metrics),
        AttemptLimits(settings.max_attempts, settings.max_deliveries),
        circuit,
        pace,
        on_replaced=metrics.texts_replaced.inc,
    )
    executor = Executor(handler, settlement, held, scheduler, gate, circuit)
    reader = Reader(
        queue.reading,
        Reclaimer(queue.reading, held, metrics.redeliveries, clock=clock),
        settlement.moves.release_unprocessed,
        heartbeats,
        # Leaves an isolated entry a few deliveries before it counts as poison.
        isolate_above=min(_ISOLATE_ABOVE, max(1, settings.max_deliveries - 2)),
    )
    shared = list(ports.shared)
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
            outage=OutageRecovery(circuit, pace, reader, executor, settlement.moves, held),
            heartbeats=heartbeats,
            maintenance=GroupMaintenance(queue.maintenance, heartbeats, settings.claim_idle, clock=clock),
            report=OutageReport(queue.liveness, circuit, ports.clock.now),
            fleet=shared,
        )
    )


def _document_reader(source: Source, decode: Decode, buffer: BufferLimit, metrics: WorkerMetrics) -> DocumentReader:
    not_kept = metrics.documents_not_kept if source.keeps_documents else None
    if source.transform is None:
        return DocumentReader(decode, buffer, not_kept)
    return GrowingDocumentReader(decode, buffer, not_kept, turns=_TURNS * source.transform.processes)


@asynccontextmanager
async def open_ports(
    settings: "Settings",
    source: Source,
    metrics: WorkerMetrics,
    name: str,
    classes: Classes | None = None,
    clock: SharedClock | None = None,
) -> AsyncIterator[Ports]:
    """Connect to the servers as the consumer `name`. Waits for unavailable ones. Tests may replace the classes.

    Raises:
        UserError: a server denies access.
    """
    classes, clock = classes or Classes(), clock or SharedClock()
    redis_url = settings.redis_url.get_secret_value()
    async with AsyncExitStack() as stack:

        async def open_store() -> OrderStore:
            return await stack.enter_async_context(classes.store.open(settings.postgres_dsn.get_secret_value()))

        async def open_consumer() -> Consumer:
            queue = (redis_url, settings.stream, settings.group)
            return await stack.enter_async_context(classes.consumer.open(*queue, name, BLOCK, source.results_age))

        store = await until_ready("postgres", open_store)
        consumer = await until_ready("redis", open_consumer)
        await until_ready("redis", consumer.access.ensure_group)
        adaptive = AdaptiveLimit(source.requests, shared=clock.now) if source.is_adaptive else None
        # With a quota, other processes receive a pause immediately, with their next lease.
        pauses = Pauses(shared_from=0.0) if source.has_quota else Pauses()
        fleet, quota = await stack.enter_async_context(open_quota(source, redis_url, metrics, clock.utc, pauses.ask))
        per_request = source.orders_per_request
        pace = Pace(source.requests, metrics.concurrency_limit, pauses, quota, adaptive, per_request=per_request)
        client = await stack.enter_async_context(
            classes.upstream.open(
                source.endpoint,
                source.limits,
                metrics.upstream_request,
                clock.utc,
                quota=quota,
                is_paused=pace.is_paused,
                attempts=adaptive,
                on_replaced=metrics.texts_replaced.inc,
            )
        )
        fetching = await stack.enter_async_context(fetching_by(client, source, pace))
        decode = await stack.enter_async_context(open_decode(source.mapping, source.transform, metrics.transform))
        shared = [part for part in (quota, fetching.bulk) if part is not None]
        queue = Queue(consumer.reading, consumer.settling, consumer.liveness, consumer.maintenance)
        yield Ports(queue, store, fetching.upstream, pace, decode, clock, fleet, shared)


@asynccontextmanager
async def open_worker(
    settings: "Settings",
    source: Source,
    metrics: WorkerMetrics,
    name: str,
    classes: Classes | None = None,
    clock: SharedClock | None = None,
) -> AsyncIterator[Worker]:
    """Open a worker with its connections. See `open_ports`."""
    async with open_ports(settings, source, metrics, name, classes, clock) as ports:
        yield build_worker(settings, source, ports, metrics)
