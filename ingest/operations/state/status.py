"""Reads the state of sources at one moment: their queues, their consumers and their stored orders."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import StoreLocked, Unavailable, UserError
from ingest.domain.operating.condition import UNREAD, Condition
from ingest.operations.backends import Backends
from ingest.operations.control.controls import ShownLimits, shown_limits
from ingest.operations.control.pauses import ShownPause
from ingest.operations.control.pauses import shown as shown_pause
from ingest.operations.state.snapshot import SourceSnapshot
from ingest.operations.state.snapshots import read_snapshot
from ingest.queue.operate.partition_monitor import ConsumerState
from ingest.store.orders.rows import Overview
from ingest.store.orders.rows import overview as read_overview


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
        condition: the state of the source, with the reasons.
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
    pause: ShownPause | None = None
    limits: ShownLimits | None = None
    drained: Sequence[str] = ()
    condition: Condition = UNREAD


async def read_status(sources: Sequence[Backends]) -> list[SystemStatus]:
    """Read the state of each source. An unavailable server is reported, not raised."""
    dsn = sources[0].postgres_dsn
    overview, snapshot = await asyncio.gather(_overview(dsn), read_snapshot(sources))
    orders = overview if isinstance(overview, Overview) else None
    problems = {"redis": snapshot.problem, "postgres": overview if isinstance(overview, str) else ""}
    errors = {server: text for server, text in problems.items() if text}
    found = []
    for each in sources:
        source = snapshot.source(each.source) or SourceSnapshot(each.source)
        found.append(
            SystemStatus(
                snapshot.at.isoformat(timespec="seconds"),
                each.source,
                each.stream,
                each.group,
                source.queue,
                None if snapshot.problem else [*source.consumers],
                None if orders is None else _orders(orders, each.source),
                errors,
                source.partitions,
                shown_pause(source.pause, snapshot.at),
                shown_limits(source.tuning),
                [consumer.name for consumer in source.consumers if snapshot.controls.drain_of(consumer.name)],
                source.condition,
            )
        )
    return found


async def _overview(dsn: str) -> Overview | str:
    """The stored orders, or why they cannot be counted."""
    try:
        return await read_overview(dsn)
    except StoreLocked:
        return "another transaction has locked the table of orders, see `ingest doctor`"
    except (Unavailable, UserError) as error:
        return str(error)


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


def _orders(found: Overview, source: str) -> OrdersStatus:
    stored = found.by_source.get(source)
    if stored is None:
        return OrdersStatus(0, None, found.is_migrated)
    return OrdersStatus(stored.stored, stored.last_ingested_at, found.is_migrated)
