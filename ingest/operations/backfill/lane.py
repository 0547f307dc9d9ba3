"""The main lane of a source, which a backfill fills in portions, so that live orders do not wait behind them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.domain.deliveries.queue_state import Lane as LaneName
from ingest.domain.fetch.listed import ListedOrder
from ingest.operations.backends import Backends
from ingest.operations.backfill.pace import BackfillPace
from ingest.operations.list_pages import announced
from ingest.queue.operate.monitor import Monitor
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

# Seconds between two looks at the lane.
_LOOK_EVERY = 0.25
# Looks after which a lane that stays full is reported.
_FULL_AFTER = 40
# Seconds for which an order that still waits is not queued again, when a page is read again after a crash.
_COALESCE = 600.0


class Lane(Protocol):
    """The main lane of a source.

    Methods raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe.
    """

    async def occupied(self) -> int:
        """Return how many entries workers have not finished."""

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        """Enqueue orders. Orders that still wait are not queued again."""


async def _immediately(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return await call(*arguments)


async def fill(
    lane: Lane,
    pace: BackfillPace,
    orders: Sequence[ListedOrder],
    on_full: Callable[[], None] = lambda: None,
    available: Callable[..., Awaitable[Any]] = _immediately,
) -> AsyncGenerator[int, None]:
    """Enqueue orders in portions, whenever the pace permits some. Yield how many are enqueued so far.

    Args:
        lane: to fill.
        pace: of all orders of the backfill.
        orders: to enqueue.
        on_full: called while the lane stays full.
        available: repeats a call while Redis is unavailable. By default, `QueueUnavailable` is raised.
    """
    done, looks = 0, 0
    while done < len(orders):
        occupied: int = await available(lane.occupied)
        if count := pace.granted(occupied):
            portion = orders[done : done + count]
            await available(lane.enqueue, portion)
            pace.note(len(portion))
            done, looks = done + len(portion), 0
            yield done
            continue
        looks = looks + 1 if occupied >= pace.limit else 0
        if looks >= _FULL_AFTER:
            on_full()
        await asyncio.sleep(_LOOK_EVERY)


@dataclass(frozen=True, slots=True)
class MainLane:
    """Implements `Lane`.

    Attributes:
        monitor: of the source's queue and the consumer group whose backlog counts.
        producer: of the queue.
        origin: kept in the entries for operators.
    """

    monitor: Monitor
    producer: Producer
    origin: str

    async def occupied(self) -> int:
        """See `Lane`."""
        lane = (await self.monitor.state()).lanes[LaneName.MAIN]
        return (lane.depth or 0) + lane.pending

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        """See `Lane`."""
        await self.producer.try_announce([announced(order, self.origin) for order in orders], coalesce=_COALESCE)


@asynccontextmanager
async def open_main_lane(servers: Backends, origin: str) -> AsyncIterator[MainLane]:
    """Open the main lane of a source. Orders are enqueued as durably as any others."""
    async with (
        control_client(servers.redis_url) as client,
        Producer.connect(
            servers.redis_url,
            servers.stream,
            partitions=servers.partitions,
            durability=servers.durability,
            replicas=servers.replicas,
        ) as producer,
    ):
        layout = LayoutRecord(client, servers.stream, servers.partitions).recent
        yield MainLane(Monitor(client, layout, servers.group), producer, origin)
