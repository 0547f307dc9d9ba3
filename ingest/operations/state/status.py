"""Reads the state of sources at one moment: their queues, their consumers and their stored orders."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import StoreLocked, Unavailable, UserError
from ingest.domain.operating.controls import NO_CONTROLS, Controls
from ingest.operations.backends import Backends
from ingest.operations.control.controls import limits_as_object
from ingest.operations.control.pauses import as_object as pause_as_object
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.operate.monitor import KnownQueue, Monitor
from ingest.queue.operate.partition_monitor import ConsumerState
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.redis.connection import QueueRefused, control_client
from ingest.store.orders.rows import Overview, overview


@dataclass(frozen=True, slots=True)
class OrdersStatus:
    """A summary of the stored orders of one source.

    Attributes:
        last_ingested_at: time of the last change of a row in UTC, or None without rows.
        is_migrated: whether our tables exist in the database.
    """

    stored: int
    last_ingested_at: datetime | None
    is_migrated: bool = True


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """The state of one source at one moment. A part whose server is unavailable is None, and `errors` contains the reason.

    Attributes:
        at: time of reading, ISO 8601 in UTC.
        source: the name of the source.
        errors: error texts by server, `redis` and `postgres`. They are the same for all sources.
        partitions: the state of each partition, by the name of its queue. Empty with a single partition.
        pause: by an operator, or None.
        limits: changed by an operator while workers run, or None.
        drained: consumers that begin no orders, because an operator has drained them.
        troubles: of its partitions.
    """

    at: str
    source: str
    stream: str
    group: str
    queue: QueueState | None
    consumers: list[ConsumerState] | None
    orders: OrdersStatus | None
    errors: dict[str, str]
    partitions: Mapping[str, QueueState] = field(default_factory=dict)
    pause: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] | None = None
    drained: Sequence[str] = ()
    troubles: Sequence[PartitionTrouble] = ()


async def read_status(sources: Sequence[Backends]) -> list[SystemStatus]:
    """Read the state of each source. An unavailable server is reported, not raised."""
    errors: dict[str, str] = {}
    queues: Mapping[str, KnownQueue] = {}
    orders: Overview | None = None
    controls, now = NO_CONTROLS, datetime.now(UTC)
    try:
        async with control_client(sources[0].redis_url) as client:
            controls = await _controls(client, sources[0])
            reading = (Monitor(client, layout_reader(client, each.stream), each.group) for each in sources)
            states = await asyncio.gather(*(monitor.known() for monitor in reading))
            queues = dict(zip((each.source for each in sources), states, strict=True))
            if problem := next((each.problem for each in states if each.problem), None):
                errors["redis"] = problem
    except (Unavailable, UserError) as error:
        errors["redis"] = str(error)
    try:
        orders = await overview(sources[0].postgres_dsn)
    except StoreLocked:
        errors["postgres"] = "another transaction has locked the table of orders, see `ingest doctor`"
    except (Unavailable, UserError) as error:
        errors["postgres"] = str(error)
    found = []
    for each in sources:
        queue = queues.get(each.source)
        of_source = None if orders is None else _orders(orders, each.source)
        found.append(
            SystemStatus(
                now.isoformat(timespec="seconds"),
                each.source,
                each.stream,
                each.group,
                queue.total if queue else None,
                queue.consumers if queue else None,
                of_source,
                errors,
                queue.partitions if queue else {},
                pause_as_object(controls.pause_of(each.source, now), now),
                limits_as_object(controls.tunings.get(each.source)),
                [consumer.name for consumer in (queue.consumers if queue else ()) if controls.drain_of(consumer.name)],
                queue.troubles if queue else (),
            )
        )
    return found


def totals(sources: Iterable[SystemStatus]) -> dict[str, Any]:
    """Add up the sources. A number is None if it is unknown for one of them."""
    sources = list(sources)
    queues, orders = [each.queue for each in sources], [each.orders for each in sources]
    ages = [queue.oldest_age for queue in queues if queue is not None and queue.oldest_age is not None]
    return {
        "depth": _sum(None if queue is None else queue.depth for queue in queues),
        "pending": _sum(None if queue is None else queue.pending for queue in queues),
        "oldest_age": max(ages, default=None),
        "retries": _sum(None if queue is None else queue.retries for queue in queues),
        "dead": _sum(None if queue is None else queue.dead for queue in queues),
        "stored": _sum(None if each is None else each.stored for each in orders),
    }


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


async def _controls(client: Redis, backends: Backends) -> Controls:
    """The controls, or none if the user lacks the right to read them."""
    try:
        return await ControlRecord(client, backends.deployment, backends.group).read()
    except QueueRefused:
        return NO_CONTROLS


def _orders(found: Overview, source: str) -> OrdersStatus:
    stored = found.by_source.get(source)
    if stored is None:
        return OrdersStatus(0, None, found.is_migrated)
    return OrdersStatus(stored.stored, stored.last_ingested_at, found.is_migrated)
