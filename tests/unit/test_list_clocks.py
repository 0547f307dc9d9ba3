"""Polls of a list whose clock differs from ours, in memory."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from fakes.listed_orders import MemoryOrders, MemoryPolls, MemoryQueue

from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.operations.poll.look import Found, Look
from ingest.operations.poll.turns import PollPlan, Turns

MINUTE = timedelta(minutes=1)


class Site:
    """A list that is polled every minute.

    Args:
        ahead: how far our clock is ahead of the shop's.
        has_date: whether the shop sends its time.
    """

    shape = ListShape(has_pages=False, has_times=True)

    def __init__(self, ahead: timedelta, *, has_date: bool = True) -> None:
        self.shop_now = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
        self.listed: dict[str, datetime] = {}
        self._has_date = has_date
        self.date_behind = timedelta()

        def now() -> datetime:
            return self.shop_now + ahead

        self.queue = MemoryQueue(now)
        look = Look(cast("Any", MemoryOrders()), "", cast("Any", self.queue), now, 100)
        plan = PollPlan(60.0, 5 * MINUTE, timedelta())
        self._turns = Turns(cast("Any", MemoryPolls()), look, plan, now)

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        found = [ListedOrder(name, at) for name, at in self.listed.items() if at >= request.since]
        return ListedPage(found, len(found), sent_at=self.shop_now - self.date_behind if self._has_date else None)

    async def poll(self, listed: Mapping[str, timedelta]) -> Found:
        """List orders that changed this long ago by the shop's clock, and read the list, a minute later."""
        self.shop_now += MINUTE
        self.listed |= {name: self.shop_now - ago for name, ago in listed.items()}
        turn = await self._turns.take(is_due=True)
        assert turn is not None
        return await self._turns.run(turn, self)


@pytest.mark.parametrize("ahead", [10 * MINUTE, timedelta()])
async def test_the_first_position_is_of_the_clock_of_the_shop_if_ours_is_ahead(ahead: timedelta) -> None:
    site = Site(ahead)

    first = await site.poll({"recent": MINUTE, "old": 10 * MINUTE})
    position = first.position
    enqueued = [announcement.order_id for announcement, _ in site.queue.waiting]
    second = await site.poll({"new": MINUTE / 2})

    assert (position, enqueued) == (site.shop_now - MINUTE, ["recent"])
    assert (second.position, second.behind) == (site.shop_now, 0.0)


async def test_one_wrong_time_of_the_shop_does_not_move_the_position_back() -> None:
    site = Site(timedelta())
    position = (await site.poll({})).position

    site.date_behind = timedelta(days=9_000)
    found = await site.poll({})

    assert found.position == position


@pytest.mark.parametrize("has_date", [True, False])
async def test_a_list_that_is_late_shows_it_even_without_the_time_of_the_shop(*, has_date: bool) -> None:
    site = Site(timedelta(), has_date=has_date)

    for number in range(3):
        found = await site.poll({f"order {number}": 10 * MINUTE})

    assert found.behind == 600.0
