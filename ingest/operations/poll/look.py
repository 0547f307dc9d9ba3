"""Reads a list of orders once, and enqueues the orders that are missing or older in PostgreSQL.

Orders are enqueued page by page, and enqueueing again is harmless: if the process dies here, another reading begins at the same position.
"""

import asyncio
from collections.abc import Callable, Sequence
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
from ingest.operations.list_pages import announced, briefly, pages_of
from ingest.queue.produce.producer import BacklogFull, Producer
from ingest.store.connections.statements import Fetches
from ingest.store.orders.listed_changes import changed_orders

# The longest time of coalescing. An order that no worker has received yet will be fetched in its newest version.
_COALESCE = 86_400.0
_ORIGIN = "poll"

OnProgress = Callable[[int], None]


def _no_progress(_: int) -> None:
    pass


class Found(msgspec.Struct, frozen=True):
    """The result of one reading.

    Attributes:
        position: all changes before it were in the list. The beginning of the reading, by the slower one of the shop's clock and ours,
            unless the reading has not proven that it is complete.
        counts: of the elements.
        gaps: parts of the list that could not be read or proven.
        shown: the newest times, and the number of all elements.
        behind: seconds by which the times in the list are behind the shop's clock.
    """

    position: datetime
    counts: PollCounts
    gaps: ListGaps
    shown: ShownTimes
    behind: float = 0.0


class LookPeriod(msgspec.Struct, frozen=True):
    """The period of one reading.

    Attributes:
        since: its start.
        overlap: how far before this reading the next one begins.
        enqueue_from: orders with earlier times are read, but not enqueued. None to enqueue all.
    """

    since: datetime
    overlap: timedelta
    enqueue_from: datetime | None = None


class Look:
    """Reads the list of one source.

    Args:
        connection: to PostgreSQL.
        source: name of the source.
        producer: of the source's queue.
        now: our clock, by which the time of a fetch is stored.
        step: most orders that are enqueued in one step.
    """

    def __init__(
        self,
        connection: Fetches,
        source: str,
        producer: Producer,
        now: Callable[[], datetime],
        step: int,
    ) -> None:
        self._connection = connection
        self._source = source
        self._producer = producer
        self._now = now
        self._step = step

    async def run(
        self,
        orders: OrderList,
        turn: PollTurn,
        period: LookPeriod,
        on_progress: OnProgress = _no_progress,
        on_reached: Callable[[datetime], None] = lambda _: None,
    ) -> Found:
        """Enqueue the orders that have changed since a time, by the shop's clock. When it returns, Redis has them all.

        Args:
            orders: the list.
            turn: with the result of the reading before.
            period: to read.
            on_progress: called with the number of listed orders after each page.
            on_reached: called with a time when all orders that changed before it are in Redis, if the list is sorted.

        Raises:
            Fault: the list cannot be read.
            StoreUnavailable: PostgreSQL cannot be used right now.
            UserError: Redis or PostgreSQL denies access.
        """
        counts, began_at = PollCounts(), self._now()
        shown, seconds_behind = ShownTimes(), turn.behind
        reading = Reading(orders.shape, period.since, None, read_again=period.overlap)
        async for page, new in pages_of(orders, reading, pause_after=briefly(orders), now=self._now):
            now = self._now()
            sent_at = page.sent_at or now
            if not counts.pages:
                began_at = min(began_at, sent_at)
            counts.pages += 1
            shown.add(new, began_at)
            counts.skipped += sum(order.is_skipped is True for order in new)
            seconds_behind = behind(shown.newest, turn, began_at)
            late = timedelta(seconds=max(seconds_behind, turn.behind))
            clock = ListClock(sent_at, now - sent_at, orders.shape.unit, late)
            since = max(period.since, period.enqueue_from or period.since)
            await self._take(_within(new, since - SECOND - clock.unit), clock, counts)
            on_progress(counts.listed)
            # A time in the future, of some orders, must not become the position.
            on_reached(min(reading.position, began_at))
        position = reading.position if reading.gaps.unproven else began_at
        return Found(position, counts, reading.gaps, shown, seconds_behind)

    async def _take(self, listed: Sequence[ListedOrder], clock: ListClock, counts: PollCounts) -> None:
        counts.listed += len(listed)
        if not listed:
            return
        changed = await changed_orders(self._connection, self._source, listed, clock)
        counts.unchanged += len(listed) - len(changed)
        await self._enqueue([announced(order, _ORIGIN) for order in listed if order.order_id in changed], counts)

    async def _enqueue(self, orders: Sequence[Announcement], counts: PollCounts) -> None:
        # In steps that Redis accepts or rejects as a whole, so that no order is queued again because another one did not fit.
        for start in range(0, len(orders), self._step):
            accepted = await self._accepted(orders[start : start + self._step])
            counts.enqueued += accepted.accepted
            counts.waiting += accepted.duplicates

    async def _accepted(self, orders: Sequence[Announcement]) -> Accepted:
        while True:
            try:
                return await self._producer.try_announce(orders, coalesce=_COALESCE)
            except (QueueUnavailable, BacklogFull) as error:
                if isinstance(error, UserError):
                    raise
                await asyncio.sleep(error.retry_after)


def _within(orders: Sequence[ListedOrder], since: datetime) -> list[ListedOrder]:
    """Return the orders that have changed since a time or whose time is unknown, each once, with its last time.

    Documents that are no orders by the mapping are left out.
    """
    found: dict[str, ListedOrder] = {}
    for order in orders:
        if order.is_skipped or not order.is_within(since):
            continue
        known = found.get(order.order_id)
        if known is None or known.updated_at is None or (order.updated_at or since) >= known.updated_at:
            found[order.order_id] = order
    return list(found.values())
