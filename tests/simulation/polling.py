"""Polling in a story: the list of a shop, the records in PostgreSQL, and the poller of each process, built as in production."""

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from fakes.group import MemoryGroup
from fakes.listed_orders import MemoryOrders, MemoryPolls, MemoryRow
from fakes.virtual_time import now
from fakes.workers import metrics

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.entry_fields import EXPECTED_VERSION, ORDER_ID, ORIGIN
from ingest.domain.errors import ListFault, StoreUnavailable, TransientFault
from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.domain.operating.polling import PollResult, PollTurn
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.clock import SharedClock
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.services.lists.poller import Poller, YieldingList
from ingest.services.lists.polling import turns_of
from ingest.settings import Settings
from simulation.shop import Shop, Table
from simulation.story import Story

_NEVER = datetime.max.replace(tzinfo=UTC)


class _ShownList:
    """The list of a shop, with all orders on one page, and without a quota."""

    shape = ListShape(has_pages=False, has_times=True)
    lost = TransientFault

    def __init__(self, story: Story, shop: Shop) -> None:
        self._response_time = story.response_time
        self._shop = shop

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        given = self._shop.given
        orders = [ListedOrder(*each) for each in self._shop.listed() if each[1] >= request.since]
        await asyncio.sleep(self._response_time)
        if given is not None:
            raise ListFault("no page of the list") if isinstance(given, bytes) else given
        return ListedPage(orders, len(orders), sent_at=datetime.fromtimestamp(math.floor(now()), UTC))


class _Records(MemoryPolls):
    """The turns of all processes and the stored orders, in the PostgreSQL of the table.

    Attributes:
        read_from: when the last successful reading began.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(now)
        self.table = table
        # The list was polled before the story.
        self.position = datetime.fromtimestamp(now(), UTC)
        self.read_from = self._taken_at = 0.0

    async def take(self, start: datetime, *, is_due: bool = False, holder: str = "") -> PollTurn | None:
        turn = await super().take(start, is_due=is_due, holder=holder)
        self._taken_at = self._taken_at if turn is None else now()
        return turn

    async def advance(self, turn: PollTurn, result: PollResult, pause: float) -> bool:
        # A reading measures its real time, which differs in each process.
        has_turn = await super().advance(turn, result, math.ceil(pause))
        self.read_from = self._taken_at if has_turn else self.read_from
        return has_turn

    async def changed(self, statement: str, source: str, ids: Any, moment: timedelta, *others: Any) -> list[Any]:
        """The result of the statement of `changed_orders`."""
        orders = MemoryOrders()
        orders.rows = {name: _row(row, moment) for name, row in self.table.rows.items()}
        return await orders.fetch(statement, source, ids, moment, *others)


class _Session:
    """The connection of one process to PostgreSQL."""

    lost = StoreUnavailable

    def __init__(self, records: _Records, process: str) -> None:
        self._records = records
        self._named = {"take": {"holder": process}}

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            if not self._records.table.is_available:
                raise StoreUnavailable("connection refused")
            return await getattr(self._records, name)(*arguments, **named, **self._named.get(name, {}))

        return call


class _Producer:
    """Enqueues listed orders. One that a reading has enqueued and no worker has received yet only gets the later version."""

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group

    async def try_announce(self, orders: Sequence[Announcement], *, coalesce: float = 0.0) -> Accepted:
        """See `Producer`."""
        del coalesce
        group, duplicates = self._group, 0
        group.require_available()
        waiting = {group.stream[entry][ORDER_ID]: entry for entry in group.undelivered if ORIGIN in group.stream[entry]}
        for order in orders:
            fields = order.fields()
            entry = waiting.get(fields[ORDER_ID])
            if entry is None:
                group.add_entry(fields)
                continue
            duplicates += 1
            version = max(group.stream[entry][EXPECTED_VERSION], fields[EXPECTED_VERSION], key=int)
            group.stream[entry] = {**group.stream[entry], EXPECTED_VERSION: version}
        return Accepted(len(orders) - duplicates, duplicates)


class Polling:
    """Polling of one source."""

    def __init__(self, story: Story, shop: Shop, table: Table, group: MemoryGroup) -> None:
        self._story = story
        self._orders, self._records, self._producer = _ShownList(story, shop), _Records(table), _Producer(group)

    def is_complete(self, since: float) -> bool:
        """Whether the list was read completely after this time."""
        return self._records.read_from > since

    def poller(
        self, name: str, settings: Settings, reach: Callable[[Any], Any], pace: Pace, clock: SharedClock
    ) -> Poller:
        """The poller of one process, composed as in `ingest.services.lists`."""
        records: Any = reach(_Session(self._records, name))
        connection: Any = SimpleNamespace(fetch=records.changed)
        options: Any = SimpleNamespace(overlap=timedelta(seconds=self._story.overlap), look_back=timedelta())
        settings = settings.model_copy(update={"poll": self._story.poll})
        turns = turns_of(settings, options, records, connection, reach(self._producer), clock.utc)
        listed = YieldingList(reach(self._orders), pace, SourceControls(), None)
        return Poller(records, turns, listed, name, self._story.poll, metrics(), clock.utc)


def _row(row: OrderRow, moment: timedelta) -> MemoryRow:
    """A row as the statement compares it. Without `updated_at`, its version is the time of its fetch, and it is not fetched once more."""
    if row.updated_at is None:
        return MemoryRow(row.fetched_at - moment, _NEVER, b"")
    return MemoryRow(row.age[0], row.fetched_at, b"")
