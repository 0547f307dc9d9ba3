"""A list without orders that contradicts the reading before it, in memory."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from fakes.listed_orders import MemoryOrders, MemoryPolls, MemoryQueue

from ingest.domain.errors import ListFault
from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.operations.poll.look import Found, Look
from ingest.operations.poll.turns import PollPlan, Turns

NOW = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Site:
    """A list with one page, which is polled every minute.

    Attributes:
        begins: of the periods that were requested.
    """

    def __init__(self, *, has_times: bool) -> None:
        self.now = NOW
        self.shape = ListShape(has_pages=False, has_times=has_times)
        self.listed: dict[str, datetime] = {}
        self.begins: list[datetime] = []
        self.queue = MemoryQueue(lambda: self.now)
        look = Look(cast("Any", MemoryOrders()), "", cast("Any", self.queue), lambda: self.now, 100)
        self.polls = MemoryPolls()
        plan = PollPlan(60.0, timedelta(minutes=5), timedelta())
        self._turns = Turns(cast("Any", self.polls), look, plan, lambda: self.now)

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        self.begins.append(request.since)
        found = [
            ListedOrder(name, at if self.shape.has_times else None)
            for name, at in self.listed.items()
            if at >= request.since
        ]
        return ListedPage(found, len(found))

    async def poll(self) -> Found:
        """Read the list, a minute later."""
        self.now += MINUTE
        turn = await self._turns.take(is_due=True)
        assert turn is not None
        return await self._turns.run(turn, self)


@pytest.mark.parametrize("has_times", [True, False])
async def test_a_list_whose_orders_were_all_deleted_fails_three_times_and_then_counts_as_empty(
    *, has_times: bool
) -> None:
    site = Site(has_times=has_times)
    await site.poll()
    site.listed["a"] = site.now
    await site.poll()
    position = site.polls.position
    site.listed.clear()

    for _ in range(3):
        with pytest.raises(ListFault, match="the list is empty, although"):
            await site.poll()
        assert site.polls.position == position
    for _ in range(10):
        found = await site.poll()
        assert (found.counts.listed, site.polls.error) == (0, None)


@pytest.mark.parametrize("has_times", [True, False])
async def test_orders_that_changed_while_a_list_was_wrongly_empty_are_found(*, has_times: bool) -> None:
    site = Site(has_times=has_times)
    await site.poll()
    site.listed["a"] = site.now
    await site.poll()
    hidden, site.listed = {**site.listed, "b": site.now + MINUTE}, {}
    for number in range(30):
        if number < 3:
            with pytest.raises(ListFault):
                await site.poll()
        else:
            await site.poll()

    site.listed = hidden
    await site.poll()
    for number in range(20):
        site.listed[f"later {number}"] = site.now
        await site.poll()

    assert {"a", "b"} <= {announcement.order_id for announcement, _ in site.queue.waiting}
    # The place is kept only until the list shows orders.
    assert site.begins[-1] > site.now - timedelta(minutes=10)
