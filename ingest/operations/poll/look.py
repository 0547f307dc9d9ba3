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
from ingest.domain.fetch.listed import ListedOrder, OrderList, pages_of
from ingest.domain.operating.polling import PollCounts
from ingest.operations.list_pages import announced
from ingest.queue.produce.producer import BacklogFull, Producer
from ingest.store.connections.statements import Fetches
from ingest.store.orders.listed_changes import changed_orders

# The longest time of coalescing. An order that no worker has received yet will be fetched in its newest version.
_COALESCE = 86_400.0
_ORIGIN = "poll"
# Orders of a reading that are remembered, of about 150 bytes each.
_MOST_SEEN = 100_000
# Times in lists are often whole seconds, and the period begins at any fraction of one.
_SECOND = timedelta(seconds=1)

OnProgress = Callable[[int], None]


def _no_progress(_: int) -> None:
    pass


class Found(msgspec.Struct, frozen=True):
    """The result of one reading.

    Attributes:
        began_at: when it began, by the slower one of the shop's clock and ours. All earlier changes were in the list.
        counts: of the elements.
    """

    began_at: datetime
    counts: PollCounts


class Look:
    """Reads the list of one source.

    Args:
        connection: to PostgreSQL.
        source: name of the source.
        producer: of the source's queue.
        now: our clock, by which the time of a fetch is stored.
        step: most orders that are enqueued in one step.
        has_times: whether the list contains the times of changes.
    """

    def __init__(
        self,
        connection: Fetches,
        source: str,
        producer: Producer,
        now: Callable[[], datetime],
        step: int,
        *,
        has_times: bool,
    ) -> None:
        self._connection = connection
        self._source = source
        self._producer = producer
        self._now = now
        self._step = step
        self._has_times = has_times

    async def run(
        self,
        orders: OrderList,
        since: datetime,
        on_progress: OnProgress = _no_progress,
        on_reached: Callable[[datetime], None] = lambda _: None,
    ) -> Found:
        """Enqueue the orders that have changed since a time, by the shop's clock. When it returns, Redis has them all.

        Args:
            orders: the list.
            since: start of the period.
            on_progress: called with the number of listed orders after each page.
            on_reached: called with a time when all orders that changed before it are in Redis, if the list is sorted.

        Raises:
            Fault: the list cannot be read.
            StoreUnavailable: PostgreSQL cannot be used right now.
            UserError: Redis or PostgreSQL denies access.
        """
        counts, seen = PollCounts(), _Seen()
        requested_at = began_at = self._now()
        async for page in pages_of(orders, since, None):
            sent_at = page.sent_at or requested_at
            if not counts.pages:
                began_at = min(began_at, sent_at)
            counts.pages += 1
            listed = seen.new(_within(page.orders, since - _SECOND))
            counts.unusable += page.skipped
            await self._take(listed, self._now() - sent_at, counts)
            on_progress(counts.listed)
            if page.read_until is not None:
                # A time in the future, of a single order, must not become the position.
                on_reached(min(page.read_until, began_at))
            requested_at = self._now()
        return Found(began_at, counts)

    async def _take(self, listed: Sequence[ListedOrder], clock_ahead: timedelta, counts: PollCounts) -> None:
        counts.listed += len(listed)
        if self._has_times:
            counts.untimed += sum(order.updated_at is None for order in listed)
        if not listed:
            return
        changed = await changed_orders(self._connection, self._source, listed, clock_ahead)
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


class _Seen:
    """The orders of one reading. Pages may overlap, and an order that is being fetched must not be queued again."""

    def __init__(self) -> None:
        self._times: dict[str, datetime | None] = {}

    def new(self, orders: Sequence[ListedOrder]) -> list[ListedOrder]:
        """Return the orders that were not in this reading before, with the same time."""
        unknown: object = self
        found = [order for order in orders if self._times.get(order.order_id, unknown) != order.updated_at]
        if len(self._times) > _MOST_SEEN:
            self._times.clear()
        self._times.update((order.order_id, order.updated_at) for order in found)
        return found


def _within(orders: Sequence[ListedOrder], since: datetime) -> list[ListedOrder]:
    """Return the orders that have changed since a time or whose time is unknown, each once, with its last time."""
    found: dict[str, ListedOrder] = {}
    for order in orders:
        if order.updated_at is not None and order.updated_at < since:
            continue
        known = found.get(order.order_id)
        if known is None or known.updated_at is None or (order.updated_at or since) >= known.updated_at:
            found[order.order_id] = order
    return list(found.values())
