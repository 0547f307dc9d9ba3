"""How a worker is put together: from settings and ports, or from settings alone.

Public: the service itself, its tests and its benches build workers here, each with the ports that it needs.
"""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from ingest.domain.orders.order import decode_order
from ingest.flow.availability import until_ready
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.clock import SharedClock, steady
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.document_reader import DocumentReader, GrowingDocumentReader
from ingest.flow.deliver.executor import Executor
from ingest.flow.deliver.handler import AttemptLimits, Handler
from ingest.flow.deliver.kept_documents import KeptDocuments
from ingest.flow.deliver.slots import Slots
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.group.maintenance import GroupMaintenance
from ingest.flow.held import InFlight
from ingest.flow.known_orders import canary_request
from ingest.flow.outage_recovery import OutageRecovery
from ingest.flow.outage_report import OutageReport
from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.fleet_pause import SHORTEST, FleetPause
from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.pauses import Pacing
from ingest.flow.pace.request_pace import RequestPace, SharedPacing
from ingest.flow.ports import Decode, FleetPart, FleetPauses, Liveness, Maintenance, Settling, Source, Store, Upstream
from ingest.flow.read.reader import BLOCK, Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.settle.settlement import Settlement
from ingest.flow.worker import Parts, Worker
from ingest.queue.consume.consumer import Consumer
from ingest.sources.bulk_requests import bulk_options, orders_per_request, requests_at_once
from ingest.sources.documents import mapping_of, open_decode, with_parts
from ingest.sources.endpoint import endpoint_of, limits_of
from ingest.sources.quota_of import open_quota
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.metrics import WorkerMetrics
from ingest.upstream.bulk.bulk import BulkUpstream
from ingest.upstream.client import UpstreamClient
from ingest.upstream.quota.quota import FleetQuota

if TYPE_CHECKING:
    from ingest.settings import Settings

# Deliveries above which an entry that was never settled is isolated: its workers may have died of it.
_ISOLATE_ABOVE = 3
# Documents for each transform process, one in it and the others waiting: for it, or for buffer space for what it has returned.
_TURNS = 4


class Queue(Source, Settling, Liveness, Maintenance, Protocol):
    """A consumer of the group, with all that the flow needs of it."""


class Ports(msgspec.Struct, frozen=True):
    """What a worker works on.

    Attributes:
        queue: where deliveries come from and where they end.
        store: where orders go.
        upstream: where orders are fetched.
        decode: from documents to orders.
        clock: the queue server's time; `upstream` stamps documents with it.
        adaptive: the limit that learns from the attempts of `upstream`, where it is in use.
        pauses: the pauses that the external API asks all processes for; None: each process keeps its own.
        quota: of `upstream`, if it has one.
        bulk: what sends the requests of `upstream` for several orders, if the API has a list endpoint.
        client: what sends all of its requests, if that is the service's own.
    """

    queue: Queue
    store: Store
    upstream: Upstream
    decode: Decode = msgspec.field(default_factory=lambda: OrderDecoder(decode_order))
    clock: SharedClock = msgspec.field(default_factory=SharedClock)
    adaptive: AdaptiveLimit | None = None
    pauses: FleetPauses | None = None
    quota: FleetQuota | None = None
    bulk: BulkUpstream | None = None
    client: UpstreamClient | None = None


class Classes(msgspec.Struct, frozen=True):
    """The classes that keep the ports; a test may take one that counts, waits or dies."""

    consumer: type[Consumer] = Consumer
    store: type[OrderStore] = OrderStore
    upstream: type[UpstreamClient] = UpstreamClient


def build_worker(
    settings: "Settings",
    ports: Ports,
    metrics: WorkerMetrics,
    *,
    clock: Callable[[], float] = time.monotonic,
    lease_clock: Callable[[], float] = steady,
) -> Worker:
    """A worker on these ports.

    Args:
        settings: limits and times.
        ports: what it works on.
        metrics: what it counts.
        clock: monotonic seconds.
        lease_clock: seconds for heartbeats and leases, which go on while the machine sleeps; those of `ports.clock`.
    """
    queue = ports.queue
    in_flight = InFlight(metrics.in_flight, clock=lease_clock)
    heartbeats = Heartbeats(
        queue, in_flight, settings.claim_idle, settings.heartbeat_ttl, ports.clock, clock=lease_clock
    )
    per_request, requests = orders_per_request(settings), requests_at_once(settings)
    circuit = CircuitBreaker(
        canary_request(ports.upstream, ports.decode),
        metrics.circuit_open,
        metrics.circuit_unproven,
        ports.store.some_stored,
        requests,
        clock=clock,
    )
    pacing = Pacing(clock=clock) if per_request == 1 else SharedPacing(clock=clock)
    limit = ConcurrencyLimit(requests, metrics.concurrency_limit, pacing, ports.adaptive, clock=clock)
    if ports.client is not None:
        ports.client.is_paused = pacing.is_paused
    if ports.bulk is not None and isinstance(pacing, SharedPacing):
        ports.bulk.pace = RequestPace(limit, pacing)
    buffer = BufferLimit(settings.batch_rows, settings.batch_bytes)
    settlement = Settlement(
        queue, ports.store, in_flight, heartbeats, metrics, buffer, now=ports.clock.now, clock=clock
    )
    attempts = AttemptLimits(settings.max_attempts, settings.max_deliveries)
    keep = KeptDocuments(metrics.documents_not_kept) if settings.keep_document == "on" else None
    runs_user_code = settings.transform is not None
    documents = DocumentReader(ports.decode, buffer, keep)
    if runs_user_code:
        documents = GrowingDocumentReader(ports.decode, buffer, keep, turns=_TURNS * settings.transform_processes)
    handler = Handler(
        ports.upstream, documents, attempts, circuit, limit, on_replaced=metrics.texts_replaced.inc, clock=clock
    )
    executor = Executor(handler, settlement, in_flight, circuit, pacing, runs_user_code=runs_user_code)
    reader = Reader(
        queue,
        Reclaimer(queue, in_flight, metrics.redeliveries, clock=clock),
        settlement.release_unprocessed,
        heartbeats,
        # Leaves an isolated entry a few deliveries of its own before it counts as poison.
        isolate_above=min(_ISOLATE_ABOVE, max(1, settings.max_deliveries - 2)),
    )
    return Worker(
        Parts(
            queue=queue,
            in_flight=in_flight,
            slots=Slots(
                in_flight,
                limit,
                pacing,
                circuit,
                most=settings.concurrency,
                per_request=per_request,
                read_ahead=ports.quota.read_ahead if ports.quota else None,
            ),
            reader=reader,
            executor=executor,
            settlement=settlement,
            circuit=circuit,
            outage=OutageRecovery(circuit, limit, reader, executor, settlement, in_flight),
            heartbeats=heartbeats,
            maintenance=GroupMaintenance(queue, heartbeats, settings.claim_idle, clock=clock),
            report=OutageReport(queue, circuit, ports.clock.now),
            fleet=_fleet_parts(ports, pacing, in_flight, clock),
        )
    )


def _fleet_parts(ports: Ports, pacing: Pacing, in_flight: InFlight, clock: Callable[[], float]) -> list[FleetPart]:
    quota, parts = ports.quota, list[FleetPart]()
    if ports.bulk is not None:
        parts.append(ports.bulk)
    if ports.pauses is not None:
        # With a quota, others learn of it at once, with their next lease.
        shortest = SHORTEST if quota is None else 0.0
        parts.append(FleetPause(ports.pauses, pacing, in_flight, shortest=shortest, clock=clock))
    if quota is not None:
        quota.on_exhausted(pacing.told)
        pacing.on_refused = quota.turn_away
        parts.append(quota)
    return parts


@asynccontextmanager
async def open_ports(
    settings: "Settings",
    metrics: WorkerMetrics,
    name: str,
    classes: Classes | None = None,
    clock: SharedClock | None = None,
) -> AsyncIterator[Ports]:
    """Connections to the real servers; waits for those that are unavailable.

    Args:
        settings: where the servers are.
        metrics: count requests.
        name: the consumer's.
        classes: others than the service's own.
        clock: another than a new one.

    Raises:
        UserError: if a server refuses us.
    """
    classes = classes or Classes()
    clock = clock or SharedClock()
    async with AsyncExitStack() as stack:

        async def open_store() -> OrderStore:
            return await stack.enter_async_context(classes.store.open(settings.postgres_dsn.get_secret_value()))

        async def open_consumer() -> Consumer:
            url = settings.redis_url.get_secret_value()
            return await stack.enter_async_context(
                classes.consumer.open(
                    url,
                    settings.stream,
                    settings.group,
                    name,
                    BLOCK,
                    settings.results_age if settings.results == "on" else 0.0,
                )
            )

        store = await until_ready("postgres", open_store)
        consumer = await until_ready("redis", open_consumer)
        await until_ready("redis", consumer.ensure_group)
        adaptive = None
        if settings.upstream_adaptive == "on":
            adaptive = AdaptiveLimit(requests_at_once(settings), shared=clock.now)
        client = await stack.enter_async_context(
            classes.upstream.open(
                endpoint_of(settings, os.environ),
                limits_of(settings),
                metrics.upstream_request,
                clock.utc,
                attempts=adaptive,
                on_replaced=metrics.texts_replaced.inc,
            )
        )
        pauses, quota = await stack.enter_async_context(open_quota(settings, metrics, clock.utc))
        client.limit_to(quota)
        bulk = None
        if settings.upstream_bulk_url:
            bulk = await stack.enter_async_context(BulkUpstream.open(client, bulk_options(settings)))
        mapping = mapping_of(settings)
        upstream = with_parts(bulk or client, client, mapping, settings.upstream_body_limit)
        decode = await stack.enter_async_context(open_decode(settings, mapping, metrics.transform))
        yield Ports(consumer, store, upstream, decode, clock, adaptive, pauses, quota, bulk, client)


@asynccontextmanager
async def open_worker(
    settings: "Settings",
    metrics: WorkerMetrics,
    name: str,
    classes: Classes | None = None,
    clock: SharedClock | None = None,
) -> AsyncIterator[Worker]:
    """A worker with its connections; see `open_ports`."""
    async with open_ports(settings, metrics, name, classes, clock) as ports:
        yield build_worker(settings, ports, metrics)
