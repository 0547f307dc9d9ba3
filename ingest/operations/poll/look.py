"""Reads a list of orders once, and enqueues the orders that are missing or older in PostgreSQL.

Orders are enqueued page by page, and enqueueing again is harmless: if the process dies here, another reading begins at the same position.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.list_gaps import ListGaps
from ingest.domain.fetch.listed import SECOND, ListedOrder, OrderList
from ingest.domain.fetch.reading import Reading
from ingest.domain.fetch.shown_times import ShownTimes, behind
from ingest.domain.operating.polling import PollCounts, PollTurn
from ingest.operations.list_pages import announced, briefly, pages_of, within
from ingest.queue.produce.producer import BacklogFull, Producer
from ingest.store.connections.statements import Fetches
from ingest.store.orders.listed_changes import changed_orders

# The longest time of coalescing. An order that no worker has received yet will be fetched in its newest version.
_COALESCE = 86_400.0

OnProgress = Callable[[int], None]
"""Called with the number of listed orders after each page."""


class Found(msgspec.Struct):
    """The result of one reading so far.

    Attributes:
        position: all orders that changed before it, by the shop's clock, are in Redis.
        counts: of the elements.
        gaps: parts of the list that could not be read or proven.
        shown: the newest times, and the number of all elements.
        behind: seconds by which the times in the list are behind the shop's clock.
    """

    position: datetime
    counts: PollCounts = msgspec.field(default_factory=PollCounts)
    gaps: ListGaps = msgspec.field(default_factory=ListGaps)
    shown: ShownTimes = msgspec.field(default_factory=ShownTimes)
    behind: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """Reads the list of one source.

    Attributes:
        connection: to PostgreSQL.
        source: name of the source.
        producer: of the source's queue.
        now: our clock, by which the time of a fetch is stored.
        step: most orders that are enqueued in one step.
    """

    connection: Fetches
    source: str
    producer: Producer
    now: Callable[[], datetime]
    step: int

    async def run(
        self,
        orders: OrderList,
        turn: PollTurn,
        period: tuple[datetime, datetime],
        overlap: timedelta,
        found: Found,
        on_progress: OnProgress,
    ) -> datetime:
        """Enqueue the orders that have changed since a time, by the shop's clock. When it returns, Redis has them all.

        Returns the next position: the beginning of the reading, by the slower one of the shop's clock and ours, unless the reading has not
        proven that it is complete.

        Args:
            orders: the list.
            turn: with the result of the reading before.
            period: where the reading begins, and from where on orders are enqueued.
            overlap: how far before this reading the next one begins.
            found: the result, which changes with each page.
            on_progress: see there.

        Raises:
            Fault: the list cannot be read.
            StoreUnavailable: PostgreSQL cannot be used right now.
            UserError: Redis or PostgreSQL denies access.
        """
        (since, enqueue_from), began_at = period, self.now()
        reading = Reading(orders.shape, since, None, read_again=overlap)
        counts, shown = found.counts, found.shown = PollCounts(), ShownTimes()
        found.gaps, found.behind = reading.gaps, turn.behind
        async for page, new in pages_of(orders, reading, pause_after=briefly(orders), now=self.now):
            now = self.now()
            sent_at = page.sent_at or now
            if not counts.pages:
                began_at = min(began_at, sent_at)
                if turn.is_without_result:
                    # The first position is of our clock, which may be ahead of the shop's.
                    found.position, enqueue_from = min(found.position, began_at), min(enqueue_from, began_at - overlap)
            counts.pages += 1
            shown.add(new, began_at)
            counts.skipped += sum(order.is_skipped is True for order in new)
            found.behind = behind(shown.newest, turn, began_at)
            late = timedelta(seconds=max(found.behind, turn.behind))
            clock = ListClock(sent_at, now - sent_at, orders.shape.unit, late)
            await self._take(within(new, enqueue_from - SECOND - clock.unit), clock, counts)
            on_progress(counts.listed)
            # A time in the future, of some orders, must not become the position.
            found.position = max(found.position, min(reading.position, began_at))
        # It never moves back, or the list would be read again and again.
        return found.position if reading.gaps.unproven else max(found.position, began_at)

    async def _take(self, listed: Sequence[ListedOrder], clock: ListClock, counts: PollCounts) -> None:
        counts.listed += len(listed)
        changed = await changed_orders(self.connection, self.source, listed, clock)
        counts.unchanged += len(listed) - len(changed)
        found = [announced(order, "poll") for order in listed if order.order_id in changed]
        # In steps that Redis accepts or rejects as a whole, so that no order is queued again because another one did not fit.
        for start in range(0, len(found), self.step):
            accepted = await self._accepted(found[start : start + self.step])
            counts.enqueued += accepted.accepted
            counts.waiting += accepted.duplicates

    async def _accepted(self, orders: Sequence[Announcement]) -> Accepted:
        while True:
            try:
                return await self.producer.try_announce(orders, coalesce=_COALESCE)
            except (QueueUnavailable, BacklogFull) as error:
                if isinstance(error, UserError):
                    raise
                await asyncio.sleep(error.retry_after)
