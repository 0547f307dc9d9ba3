"""Reads snapshots of all sources, once for all viewers of a process.

A reading is shared by everyone who asks within a second, and nothing is read while no one asks. The queues come from Redis, and the counts
of outcomes from the reports of the worker processes. Rates are differences between readings.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.controls import NO_CONTROLS, Controls
from ingest.operations.state.flow_rates import FlowRates, Rates
from ingest.operations.state.gone_consumers import GoneConsumers
from ingest.operations.state.snapshot import Servers, Snapshot, SourceSnapshot, TrendPoint, in_queue, snapshot_of
from ingest.operations.state.source_states import Activity, ListedSource
from ingest.operations.state.store_checks import StoreChecks
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.monitor import KnownQueue, Monitor
from ingest.queue.operate.process_counts import read_counts
from ingest.queue.operate.quota_pauses import read_pauses
from ingest.queue.operate.server_memory import ServerMemory, read_memory
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.store.connections.pool import Pool

EVERY = 1.0
"""Seconds for which a snapshot is shared."""
MOST_POINTS = 300
"""Readings that a trend contains at most."""


class Snapshots:
    """The snapshots of one process.

    Args:
        redis: a client of the queue server.
        sources: at least one.
        clock: monotonic seconds.
        pool: to check whether PostgreSQL can be used. Without it, this is not known.
    """

    def __init__(
        self,
        redis: Redis,
        sources: Sequence[ListedSource],
        clock: Callable[[], float] = time.monotonic,
        pool: Pool | None = None,
    ) -> None:
        self._redis = redis
        self._store = None if pool is None else StoreChecks(pool)
        self._sources = {each.name: each for each in sorted(sources, key=lambda each: each.name)}
        self._clock = clock
        backends = next(iter(self._sources.values())).backends
        self._group = backends.group
        self._record = ControlRecord(redis, backends.deployment, backends.group)
        self._monitors = {
            each.name: Monitor(
                redis,
                LayoutRecord(redis, each.backends.stream, each.backends.partitions).recent,
                each.backends.group,
            )
            for each in sources
        }
        self._flows = {name: FlowRates() for name in self._sources}
        self._gone = {name: GoneConsumers() for name in self._sources}
        self._reading = asyncio.Lock()
        self._latest: Snapshot | None = None
        self._read_at = 0.0
        self._trends: deque[Mapping[str, TrendPoint]] = deque(maxlen=MOST_POINTS)

    async def latest(self) -> Snapshot:
        """Return a snapshot that is at most a second old. If Redis is unavailable, `problem` contains the reason."""
        async with self._reading:
            now = self._clock()
            if self._latest is None or now - self._read_at >= EVERY:
                if now - self._read_at > MOST_POINTS:
                    self._trends.clear()
                # A reading that is cancelled changes nothing.
                if self._store is not None:
                    await self._store.refresh(now)
                self._latest = await self._read(now)
                self._read_at = now
            return self._latest

    def _servers(self, problem: str = "", memory: ServerMemory | None = None) -> Servers:
        if self._store is None:
            return Servers(problem, memory=memory)
        return Servers(problem, self._store.problem, self._store.lockers, memory)

    async def _read(self, now: float) -> Snapshot:
        try:
            return await self._read_all(now)
        except QueueUnavailable as error:
            before = self._latest.controls if self._latest is not None else NO_CONTROLS
            unknown = [SourceSnapshot(name, Activity.UNKNOWN) for name in self._sources]
            return snapshot_of(datetime.now(UTC), unknown, before, tuple(self._trends), self._servers(str(error)))

    async def _read_all(self, now: float) -> Snapshot:
        known = self._latest.controls if self._latest is not None else NO_CONTROLS
        controls, pauses, memory, found = await asyncio.gather(
            self._record.read(known),
            self._pauses(),
            read_memory(self._redis),
            asyncio.gather(*(self._monitors[name].known() for name in self._sources)),
        )
        queues = dict(zip(self._sources, found, strict=True))
        rates = await self._rates(now, queues)
        at = datetime.now(UTC)
        gone = {name: self._gone[name].add(now, queue.consumers) for name, queue in queues.items()}
        sources = [
            _source(each, queues[each.name], rates[each.name], controls, pauses[each.quota], at)
            for each in self._sources.values()
        ]
        sources = [replace(each, gone=gone[each.source]) for each in sources]
        self._trends.append(
            {each.source: TrendPoint(each.rates.arrived, each.rates.stored, in_queue(each.queue)) for each in sources}
        )
        return snapshot_of(at, sources, controls, tuple(self._trends), self._servers(memory=memory))

    async def _pauses(self) -> Mapping[str, float]:
        quotas = [each.quota for each in self._sources.values()]
        try:
            return await read_pauses(self._redis, quotas)
        except QueueUnavailable:
            # Their server is unavailable, or an access control list of an earlier release does not permit them.
            return dict.fromkeys(quotas, 0.0)

    async def _rates(self, now: float, queues: Mapping[str, KnownQueue]) -> dict[str, Rates]:
        streams = {name: each.backends.stream for name, each in self._sources.items()}
        alive = {
            name: [each.name for each in queue.consumers if each.state == "alive"] for name, queue in queues.items()
        }
        pairs = [(streams[name], each) for name, names in alive.items() for each in names]
        counts = await read_counts(self._redis, self._group, pairs)
        rates = {}
        for name, names in alive.items():
            reported = {each: counts[key] for each in names if (key := (streams[name], each)) in counts}
            rates[name] = self._flows[name].add(now, queues[name].total, reported, names)
        return rates


def _source(
    source: ListedSource,
    queue: KnownQueue,
    rates: Rates,
    controls: Controls,
    throttled_for: float,
    at: datetime,
) -> SourceSnapshot:
    alive = [consumer for consumer in queue.consumers if consumer.state == "alive"]
    errors = sorted({consumer.circuit.error for consumer in alive if consumer.circuit is not None})
    pause = controls.pause_of(source.name, at)
    if not alive:
        activity = Activity.NO_WORKER
    elif pause is not None:
        activity = Activity.PAUSED
    elif errors:
        activity = Activity.CIRCUIT_OPEN
    else:
        activity = Activity.THROTTLED if throttled_for else Activity.RUNNING
    tuning = controls.tunings.get(source.name)
    return SourceSnapshot(
        source.name,
        activity,
        queue.total,
        queue.consumers,
        rates,
        pause,
        tuning,
        throttled_for,
        errors,
        troubles=queue.troubles,
    )
