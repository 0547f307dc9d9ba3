"""The ports of a worker on its servers and its external API.

If the process dies here, no delivery has been read through these connections, or it is pending under the name of the consumer.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ingest.domain.orders.plain_order import decode_plain
from ingest.flow.availability import until_ready
from ingest.flow.clock import SharedClock
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.order_requests import OrderRequests
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.flow.ports import (
    Decode,
    FleetPart,
    FleetPauses,
    History,
    Liveness,
    Maintenance,
    Reading,
    Settling,
    Store,
    Upstream,
)
from ingest.flow.read.reader import BLOCK
from ingest.process.lifecycle import allow_connections
from ingest.queue.consume.consumer import OpenPartition, QueueConsumer, open_partition
from ingest.queue.consume.count_reports import CountReports
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.services.workers.shared_parts import SharedParts
from ingest.services.workers.worker_jobs import worker_jobs
from ingest.sources.documents import open_decode
from ingest.sources.opening import fetching_by, open_quota
from ingest.sources.source import Source
from ingest.store.orders.history import HistoryStore
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.process_counts import process_counts
from ingest.telemetry.tracing.port import Tracing, current_tracing
from ingest.upstream.client import UpstreamClient
from ingest.upstream.conditions import Conditions
from ingest.upstream.notices import NoticeLog

if TYPE_CHECKING:
    from ingest.domain.fetch.listed import OrderList
    from ingest.settings import Settings


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
        controls: of the source, set by operators.
        shared: parts that coordinate with other processes while the worker runs.
        history: of orders, if it is kept. `name` is the consumer in it.
        tracing: records deliveries. None without tracing.
        unanswered_for: returns for how many seconds requests have been waiting without any response.
        redis_failing: returns why Redis accepts no regular writes, and since when, in monotonic seconds.
        jobs: makes the part that runs jobs, which may request orders. None without jobs.
    """

    queue: Queue
    store: Store
    upstream: Upstream
    pace: Pace
    decode: Decode = msgspec.field(default_factory=lambda: OrderDecoder(decode_plain))
    clock: SharedClock = msgspec.field(default_factory=SharedClock)
    pauses: FleetPauses | None = None
    controls: SourceControls = msgspec.field(default_factory=SourceControls)
    shared: Sequence[FleetPart] = ()
    history: History | None = None
    name: str = ""
    tracing: Tracing | None = None
    unanswered_for: Callable[[], float] = float
    redis_failing: Callable[[], tuple[str, float] | None] = lambda: None
    jobs: Callable[[OrderRequests], FleetPart] | None = None


class Classes(msgspec.Struct, frozen=True):
    """The classes that implement the ports. A test may replace one by a class that counts, waits or dies."""

    partition: OpenPartition = open_partition
    store: type[OrderStore] = OrderStore
    upstream: type[UpstreamClient] = UpstreamClient


@asynccontextmanager
async def open_ports(
    settings: "Settings", source: Source, metrics: WorkerMetrics, shared: SharedParts, classes: Classes | None = None
) -> AsyncIterator[Ports]:
    """Connect a source to its servers. Waits for unavailable ones.

    Args:
        settings: of the source.
        source: whose orders are processed.
        metrics: of the source.
        shared: the parts that all sources of the process use.
        classes: replacements for tests.

    Raises:
        UserError: a server denies access, or a file of the source cannot be used.
    """
    classes, connections, clock = classes or Classes(), shared.queue, shared.clock
    async with AsyncExitStack() as stack:

        async def open_consumer() -> QueueConsumer:
            opening = QueueConsumer.open(
                connections,
                LayoutRecord(connections.control, settings.stream, settings.partitions),
                settings.group,
                shared.name,
                BLOCK,
                settings.heartbeat_ttl,
                source.results_age,
                classes.partition,
            )
            return await stack.enter_async_context(opening)

        consumer = await until_ready("redis", open_consumer)
        controls = shared.controls.of(source.name)
        if controls.tuning is not None:
            source = source.tuned(controls.tuning)
            allow_connections(settings.concurrency + source.concurrency, "ingest tune")
        adaptive = AdaptiveLimit(source.requests, shared=clock.now) if source.is_adaptive else None
        # With a quota, other processes receive a pause immediately, with their next lease.
        pauses = Pauses(shared_from=0.0) if source.has_quota else Pauses()
        fleet, quota = await stack.enter_async_context(open_quota(source, connections, metrics, clock.utc, pauses.ask))
        per_request = source.orders_per_request
        tracing = current_tracing()
        pace = Pace(source.requests, metrics.concurrency_limit, pauses, quota, adaptive, per_request=per_request)
        client = await stack.enter_async_context(
            classes.upstream.open(
                source.endpoint,
                source.limits,
                metrics.upstream_request,
                clock.utc,
                conditions=Conditions(quota, controls.admit, NoticeLog(metrics.api_notices).record),
                is_paused=pace.is_paused,
                attempts=adaptive,
                on_replaced=metrics.texts_replaced.inc,
                tracing=tracing,
            )
        )
        fetching = await stack.enter_async_context(fetching_by(client, source, pace, tracing))
        decode = await stack.enter_async_context(open_decode(source.mapping, source.transform, metrics, tracing))
        parts: list[FleetPart] = [part for part in (consumer, quota, fetching.bulk) if part is not None]
        keys = Keys.of(settings.stream, settings.group)
        counts = CountReports(connections.control, keys, shared.name, partial(process_counts, metrics))
        parts.append(counts)
        listed: OrderList | None = None
        if source.order_list is not None:
            from ingest.services.lists.list_parts import ListPacing, open_list_parts  # noqa: PLC0415  only some need it

            pacing = ListPacing(pace, quota, controls)
            opening = open_list_parts(settings, source, shared, metrics, pacing)
            listed, list_parts = await stack.enter_async_context(opening)
            parts += list_parts
        yield Ports(
            queue=Queue(consumer.reading, consumer.settling, consumer.liveness, consumer.maintenance),
            store=classes.store(shared.store.of_source(), settings.source),
            upstream=fetching.upstream,
            pace=pace,
            decode=decode,
            clock=clock,
            pauses=fleet,
            controls=controls,
            shared=parts,
            history=HistoryStore(shared.store.of_source(), settings.source) if settings.history else None,
            name=shared.name,
            tracing=tracing,
            unanswered_for=client.unanswered_for,
            redis_failing=lambda: counts.failing,
            jobs=partial(worker_jobs, settings, shared, controls, listed),
        )
