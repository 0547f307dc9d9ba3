"""Reads snapshots of all sources, once for all viewers of a process.

A reading is shared by everyone who asks within a second, and nothing is read while no one asks. The queues come from Redis, and the counts
of outcomes from the reports of the worker processes. Rates are differences between readings.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable, Unavailable, UserError
from ingest.domain.operating.condition import Condition, condition_of
from ingest.domain.operating.controls import NO_CONTROLS, Controls
from ingest.domain.operating.service_report import rejections_of, webhooks_of
from ingest.domain.operating.source_state import REDIS, Reason, State
from ingest.operations.backends import Backends
from ingest.operations.state.flow_rates import FlowRates, Rates
from ingest.operations.state.gone_consumers import GoneConsumers
from ingest.operations.state.snapshot import Servers, Snapshot, SourceSnapshot, snapshot_of
from ingest.operations.state.store_checks import StoreChecks
from ingest.operations.state.worker_versions import differences
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.monitor import KnownQueue, Monitor
from ingest.queue.operate.process_counts import read_counts
from ingest.queue.operate.server_memory import read_memory
from ingest.queue.operate.service_reports import ServiceReports
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.redis.connection import QueueRefused, control_client
from ingest.store.connections.pool import Pool

EVERY = 1.0
"""Seconds for which a snapshot is shared."""


class Snapshots:
    """The snapshots of one process.

    Args:
        redis: a client of the queue server.
        sources: at least one.
        clock: monotonic seconds.
        pool: to check whether PostgreSQL can be used. Without it, this is not known.
        compares: whether to report workers that use other versions of files than this process finds, which it reads each time.
    """

    def __init__(
        self,
        redis: Redis,
        sources: Sequence[Backends],
        clock: Callable[[], float] = time.monotonic,
        pool: Pool | None = None,
        *,
        compares: bool = False,
    ) -> None:
        self._redis = redis
        self._compares = compares
        self._store = None if pool is None else StoreChecks(pool)
        self._sources = {each.source: each for each in sorted(sources, key=lambda each: each.source)}
        self._clock = clock
        backends = next(iter(self._sources.values()))
        self._group = backends.group
        self._record = ControlRecord(redis, backends.deployment, backends.group)
        self._reports = ServiceReports(redis, backends.deployment, backends.group)
        self._monitors = {
            name: Monitor(redis, LayoutRecord(redis, each.stream, each.partitions).recent, each.group)
            for name, each in self._sources.items()
        }
        self._flows = {name: FlowRates() for name in self._sources}
        self._gone = {name: GoneConsumers() for name in self._sources}
        self._reading = asyncio.Lock()
        self._latest: Snapshot | None = None
        self._read_at = 0.0
        self._redis_failed_at: float | None = None

    async def latest(self) -> Snapshot:
        """Return a snapshot that is at most a second old. If Redis is unavailable, `problem` contains the reason."""
        async with self._reading:
            now = self._clock()
            if self._latest is None or now - self._read_at >= EVERY:
                # A reading that is cancelled changes nothing.
                if self._store is not None:
                    await self._store.refresh(now)
                self._latest = await self._read(now)
                self._read_at = now
            return self._latest

    async def _read(self, now: float) -> Snapshot:
        try:
            return await self._read_all(now)
        except QueueUnavailable as error:
            before = self._latest.controls if self._latest is not None else NO_CONTROLS
            reasons = [Reason(State.QUEUE_UNAVAILABLE, str(error), self._redis_since(), REDIS), *self._of_store()]
            unknown = [
                SourceSnapshot(name, Condition(State.QUEUE_UNAVAILABLE, reasons, has_work=True))
                for name in self._sources
            ]
            return snapshot_of(datetime.now(UTC), unknown, before, Servers(str(error)))

    async def _read_all(self, now: float) -> Snapshot:
        known = self._latest.controls if self._latest is not None else NO_CONTROLS
        (controls, problems), memory, reports, found = await asyncio.gather(
            self._controls(known),
            read_memory(self._redis),
            self._reports.read(),
            asyncio.gather(*(self._monitors[name].known() for name in self._sources)),
        )
        queues = dict(zip(self._sources, found, strict=True))
        rates = await self._rates(now, queues)
        at = datetime.now(UTC)
        gone = {name: self._gone[name].add(now, queue.consumers) for name, queue in queues.items()}
        servers = self._of_store()
        if memory is not None and memory.is_full:
            problems.append("full (maxmemory): it rejects new orders")
        if problems:
            since = self._redis_since()
            servers += [Reason(State.QUEUE_UNAVAILABLE, each, since, REDIS) for each in problems]
        else:
            self._redis_failed_at = None
        webhooks = webhooks_of(reports, at.timestamp())
        sources, rejections = [], rejections_of(reports, at.timestamp())
        for name, queue in queues.items():
            pause = controls.pause_of(name, at)
            condition = condition_of(
                queue.total,
                {each.name: each.reasons for each in queue.consumers if each.state == "alive"},
                queue.last_heartbeat,
                queue.troubles,
                (pause, controls.drain_of),
                [*servers, *rejections.get(name, ()), *await self._differences(name, queue)],
            )
            sources.append(
                SourceSnapshot(
                    name,
                    condition,
                    queue.total,
                    queue.consumers,
                    rates[name],
                    pause,
                    controls.tunings.get(name),
                    gone[name],
                    queue.partitions,
                    webhooks.get(name),
                )
            )
        return snapshot_of(at, sources, controls, Servers(memory=memory))

    async def _differences(self, name: str, queue: KnownQueue) -> Sequence[Reason]:
        if not self._compares:
            return ()
        try:
            wanted = await asyncio.to_thread(self._sources[name].versions)
        except UserError:
            # The sources file has changed since, and cannot be used.
            return ()
        return differences(queue.consumers, wanted)

    async def _controls(self, known: Controls) -> tuple[Controls, list[str]]:
        """The controls, or the last known ones with the problem, if their server cannot be used or the user lacks the right."""
        try:
            return await self._record.read(known), []
        except QueueRefused:
            return known, []
        except QueueUnavailable as error:
            return known, [f"pauses and changed limits cannot be read: {error}"]

    def _of_store(self) -> list[Reason]:
        return [] if self._store is None else self._store.reasons()

    def _redis_since(self) -> float | None:
        """When this process has found the problem of Redis. None at the first reading, because it may have begun long before."""
        self._redis_failed_at = self._redis_failed_at or time.time()
        return None if self._latest is None else self._redis_failed_at

    async def _rates(self, now: float, queues: Mapping[str, KnownQueue]) -> dict[str, Rates]:
        streams = {name: each.stream for name, each in self._sources.items()}
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


async def read_snapshot(sources: Sequence[Backends], *, checks_store: bool = True) -> Snapshot:
    """Read one snapshot, which contains no rates. An unavailable server is reported, not raised.

    Args:
        sources: at least one.
        checks_store: whether to report problems of PostgreSQL that this process finds, and not only those that workers report.
    """
    dsn = sources[0].postgres_dsn
    try:
        async with control_client(sources[0].redis_url) as client, Pool.open(dsn, size=1) as pool:
            return await Snapshots(client, sources, pool=pool if checks_store else None, compares=True).latest()
    except (Unavailable, UserError) as error:
        unread = Condition(State.QUEUE_UNAVAILABLE, [Reason(State.QUEUE_UNAVAILABLE, str(error), server=REDIS)])
        unknown = [SourceSnapshot(each.source, unread) for each in sources]
        return snapshot_of(datetime.now(UTC), unknown, NO_CONTROLS, Servers(str(error)))
