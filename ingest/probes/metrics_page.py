"""Serves /metrics (a command's own metrics, and for workers the state of the queue), /healthz and /readyz."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.operating.controls import Controls
from ingest.domain.partitions import Layout
from ingest.domain.source_name import queue_of
from ingest.flow.availability import AvailabilityLog
from ingest.probes.configured_names import ConfiguredNames
from ingest.probes.observed_reasons import observed_reasons
from ingest.probes.server import Response, serving_routes
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.inspection.servers import owners_of
from ingest.queue.operate.partition_monitor import read_heartbeats
from ingest.queue.operate.partition_troubles import noticed_trouble, read_troubles
from ingest.queue.operate.queue_states import read_states
from ingest.queue.operate.service_reports import ServiceReports
from ingest.queue.partitions.layout_record import known_layouts
from ingest.queue.redis.connection import QueueRefused, control_client
from ingest.queue.redis.topology import Topology, topology_of
from ingest.telemetry.collectors import BuildCollector, ObservedQueue, QueueCollector, SharedMetricsCollector
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.logs import bound_source
from ingest.telemetry.shared_metrics import SharedMetrics

if TYPE_CHECKING:
    from ingest.settings import Settings

# Seconds in which a command usually reaches its servers. Requests wait for so long rather than fail.
_USUAL_START = 1.0

Collectors = Callable[[], Awaitable[Sequence[Collector]]]
"""The data that is read at each scrape, in addition to the shared memory."""


@asynccontextmanager
async def serving_workers(
    settings: "Settings", shared_metrics: SharedMetrics, listener: socket.socket
) -> AsyncIterator[None]:
    """Serve the metrics of `ingest worker` on `listener`, with the queues of all sources, even of those that no worker runs."""
    configured = ConfiguredNames(settings.sources)

    def sources() -> Sequence[str]:
        return [*dict.fromkeys([*shared_metrics.sources(), *configured.current()])]

    async with reading_queues(settings, sources) as queues:
        # Whatever one process does, a call that takes as long as it may is no sign of being stuck.
        longest = settings.upstream_timeout + settings.transform_timeout
        stuck_after = settings.stuck_after + longest if settings.stuck_after else 0.0
        liveness = ProcessLiveness(shared_metrics, settings.heartbeat_ttl, stuck_after)
        async with serving(shared_metrics, listener, "worker", liveness, queues):
            yield


@asynccontextmanager
async def reading_queues(settings: "Settings", sources: Callable[[], Sequence[str]]) -> AsyncIterator[Collectors]:
    """Read the states of the queues of all sources at each scrape.

    Args:
        settings: of the process, for the servers and the names of the queues.
        sources: returns the current names of the sources.
    """
    topology = topology_of(settings.redis_url.get_secret_value())
    async with control_client(topology) as client:
        record = ControlRecord(client, settings.stream, settings.group)
        log, logs = AvailabilityLog("redis"), defaultdict[str, AvailabilityLog](partial(AvailabilityLog, "redis"))

        async def queues() -> Sequence[Collector]:
            names = {source: queue_of(settings.stream, source) for source in sources()}
            try:
                found = await _layouts(client, names.values())
                layouts = {queue: layout for queue, layout in found.items() if isinstance(layout, Layout)}
                controls = await _controls(record)
                reports = await ServiceReports(client, settings.stream, settings.group).read()
                states = await _states(client, layouts.values(), settings.group)
                readable = [queue for queue, state in states.items() if isinstance(state, QueueState)]
                keys = [Keys.of(queue, settings.group) for queue in readable]
                groups = dict(zip(readable, await read_heartbeats(client, keys), strict=True))
            except (QueueUnavailable, UserError) as error:
                # The workers' own metrics are still exported. The gauges of the queues are absent rather than out of date.
                log.failed(error)
                return []
            observed = []
            if errors := [each for each in found.values() if isinstance(each, QueueUnavailable)]:
                log.failed(errors[0])
            else:
                log.succeeded()
            for source, stream in names.items():
                if isinstance(unread := found[stream], QueueUnavailable):
                    if (trouble := noticed_trouble(client, stream, unread)).server:
                        troubles = {("", trouble.kind.value): trouble.server}
                        observed.append(ObservedQueue(source, stream, None, troubles=troubles))
                    continue
                of_queues = {queue: states[queue] for queue in layouts[stream].queues}
                known = {queue: state for queue, state in of_queues.items() if isinstance(state, QueueState)}
                problem = next((each for each in of_queues.values() if isinstance(each, QueueUnavailable)), None)
                with bound_source(source):
                    if problem is not None:
                        logs[source].failed(problem)
                    else:
                        logs[source].succeeded()
                if known:
                    queue = await _observed(source, layouts[stream], known, topology)
                    noted = await read_troubles(client, settings.group, of_queues)
                    troubles = {(_number(layouts[stream], each.queue), each.kind.value): each.server for each in noted}
                    is_paused = None if controls is None else controls.pause_of(source, datetime.now(UTC)) is not None
                    reasons = observed_reasons(queue, map(groups.get, known), noted, controls, reports)
                    observed.append(queue._replace(is_paused=is_paused, troubles=troubles, reasons=reasons))
            return [QueueCollector(observed)] if observed else []

        yield queues


async def _layouts(client: Redis, queues: Iterable[str]) -> Mapping[str, Layout | QueueUnavailable]:
    found = await known_layouts(client, dict.fromkeys(queues, 1))
    # The user may lack the right to a record. A queue with several partitions is useless without it.
    return {queue: Layout(queue) if isinstance(each, QueueRefused) else each for queue, each in found.items()}


async def _controls(record: ControlRecord) -> Controls | None:
    """The controls, or None if they cannot be read."""
    with suppress(QueueUnavailable):
        return await record.read()
    return None


async def _states(client: Redis, layouts: Iterable[Layout], group: str) -> Mapping[str, QueueState | QueueUnavailable]:
    queues = [queue for layout in layouts for queue in layout.queues]
    return dict(zip(queues, await read_states(client, queues, group), strict=True))


async def _observed(source: str, layout: Layout, states: Mapping[str, QueueState], topology: Topology) -> ObservedQueue:
    """The queue with the partitions that can be read."""
    total = total_of(states.values()) if len(states) == len(layout.queues) else None
    if layout.queues == (layout.queue,):
        return ObservedQueue(source, layout.queue, total)
    owners = await owners_of(topology, states)
    return ObservedQueue(
        source,
        layout.queue,
        total,
        {_number(layout, queue): state for queue, state in states.items()},
        {_number(layout, queue): address for queue, address in owners.items()},
    )


def _number(layout: Layout, queue: str) -> str:
    """The number of a partition, or nothing for the queue with the plain name."""
    return queue.removeprefix(layout.queue).removeprefix(":")


@asynccontextmanager
async def serving(
    shared_metrics: SharedMetrics,
    listener: socket.socket,
    process: str,
    liveness: ProcessLiveness,
    further: Collectors | None = None,
) -> AsyncIterator[None]:
    """Serve on `listener` while the block runs.

    Args:
        shared_metrics: of the command's processes.
        listener: the socket.
        process: the name of the processes, before their numbers.
        liveness: whether the processes live and work.
        further: further metrics, in addition to the shared memory.
    """

    def unwell(problem: str, slots: Sequence[int]) -> Response:
        names = ", ".join(f"{process}-{slot}" for slot in slots)
        return _text(f"{problem}: {names}", HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(accept: str) -> Response:
        return await _exported(
            accept, SharedMetricsCollector(shared_metrics), *(await further() if further is not None else ())
        )

    async def healthz(_: str) -> Response:
        # Only about the processes. A process that waits for a server is healthy, and a restart would not help.
        if stalled := liveness.stalled():
            return unwell("stalled", stalled)
        if stuck := liveness.stuck():
            return unwell("stuck", stuck)
        return _text("ok")

    async def readyz(accept: str) -> Response:
        if starting := liveness.starting():
            return unwell("starting", starting)
        return await healthz(accept)

    async with serving_routes(listener, {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}):
        yield


@asynccontextmanager
async def serving_start(
    settings: "Settings", sources: Sequence[str], listener: socket.socket, servers: Sequence[AvailabilityLog]
) -> AsyncIterator[None]:
    """Respond on `listener`, which stays open, while `ingest worker` waits for its servers: it is alive, and not ready.

    Otherwise a supervisor such as Kubernetes would restart the command during an outage, with longer and longer delays.
    """

    async def healthz(_: str) -> Response:
        return _text("ok: waits for its servers")

    async def readyz(_: str) -> Response:
        problems = [f"{each.server}: {each.problem}" for each in servers if each.problem]
        return _text("; ".join(["waits for its servers", *problems]), HTTPStatus.SERVICE_UNAVAILABLE)

    async with reading_queues(settings, lambda: sources) as queues:

        async def metrics(accept: str) -> Response:
            return await _exported(accept, *await queues())

        routes = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
        # A separate descriptor, because the server closes it.
        async with serving_routes(listener.dup(), routes, _USUAL_START):
            yield


async def _exported(accept: str, *collectors: Collector) -> Response:
    registry = CollectorRegistry()
    for collector in (BuildCollector(), *collectors):
        registry.register(collector)
    encode, content_type = choose_encoder(accept)
    # The page of many sources takes seconds, in which probes are still responded to.
    return Response(await asyncio.to_thread(encode, registry), content_type=content_type)


def _text(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(text.encode() + b"\n", status)
