"""Announces by `Producer.try_enqueue`, which does not tell duplicates."""

from collections.abc import Sequence

from ingest.domain.accepted import Accepted
from ingest.domain.announcement import Announcement
from ingest.queue.producer import Producer


class PlainAnnouncer:
    """Keeps the port `Announcer`, without coalescing.

    Args:
        producer: takes orders into the queue.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def try_announce(
        self,
        orders: Sequence[Announcement],
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        coalesce: float = 0.0,
    ) -> Accepted:
        """As `Announcer`."""
        del coalesce
        return Accepted(await self._producer.try_enqueue(orders, idempotency_key=idempotency_key, express=express), 0)
