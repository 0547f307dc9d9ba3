"""The main lane of a source, which a backfill fills in portions, so that live orders do not wait behind them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from redis.asyncio import Redis

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement
from ingest.domain.deliveries.queue_state import Lane as LaneName
from ingest.domain.fetch.listed import ListedOrder
from ingest.operations.backfill.pace import BackfillPace
from ingest.queue.operate.monitor import Monitor
from ingest.queue.produce.producer import Producer

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


async def fill(
    lane: Lane,
    pace: BackfillPace,
    orders: Sequence[ListedOrder],
    *,
    on_enqueued: Callable[[int], None] = lambda _: None,
    on_full: Callable[[int], None] = lambda _: None,
) -> None:
    """Enqueue orders in portions, whenever the pace permits some.

    Args:
        lane: to fill.
        pace: of all orders of the backfill.
        orders: to enqueue.
        on_enqueued: called with the number of orders that are enqueued so far.
        on_full: called with the entries of the lane while it stays full.

    Raises:
        QueueUnavailable: some of the orders may be enqueued.
    """
    done, looks = 0, 0
    while done < len(orders):
        occupied = await lane.occupied()
        if count := pace.granted(occupied):
            portion = orders[done : done + count]
            await lane.enqueue(portion)
            pace.note(len(portion))
            done, looks = done + len(portion), 0
            on_enqueued(done)
            continue
        looks = looks + 1 if occupied >= pace.limit else 0
        if looks >= _FULL_AFTER:
            on_full(occupied)
        await asyncio.sleep(_LOOK_EVERY)


class MainLane:
    """Implements `Lane`.

    Args:
        client: connection to Redis.
        queue: name of the source's queue.
        group: the consumer group whose backlog counts.
        origin: kept in the entries for operators.
    """

    def __init__(self, client: Redis, queue: str, group: str, origin: str) -> None:
        self._monitor = Monitor(client, queue, group)
        self._producer = Producer(client, queue)
        self._origin = origin

    async def occupied(self) -> int:
        """See `Lane`."""
        lane = (await self._monitor.state()).lanes[LaneName.MAIN]
        return (lane.depth or 0) + lane.pending

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        """See `Lane`."""
        announcements = [_announcement(order, self._origin) for order in orders]
        await self._producer.try_announce(announcements, coalesce=_COALESCE)

    async def close(self) -> None:
        """Stop enqueueing."""
        await self._producer.close()


def _announcement(order: ListedOrder, origin: str) -> Announcement:
    document = order.document
    # A larger one is fetched.
    fits = document is not None and len(document) <= DOCUMENT_LIMIT
    return Announcement(order.order_id, document if fits else None, origin=origin)
