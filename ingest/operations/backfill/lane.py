"""The main lane of a source for its backfill."""

from collections.abc import Sequence

from redis.asyncio import Redis

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.queue_state import Lane
from ingest.domain.fetch.listed import ListedOrder
from ingest.queue.operate.monitor import Monitor
from ingest.queue.produce.producer import Producer

# Seconds for which an order that still waits is not queued again, when a page is read again after a crash.
_COALESCE = 600.0


class MainLane:
    """Implements `ingest.operations.backfill.run.Lane`.

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
        lane = (await self._monitor.state()).lanes[Lane.MAIN]
        return (lane.depth or 0) + lane.pending

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        """See `Lane`."""
        announcements = [Announcement(order.order_id, order.document, origin=self._origin) for order in orders]
        await self._producer.try_announce(announcements, coalesce=_COALESCE)

    async def close(self) -> None:
        """Stop enqueueing."""
        await self._producer.close()
