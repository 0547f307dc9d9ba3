"""Pages of a list are requested behind the requests for orders."""

from datetime import UTC, datetime
from typing import Any, cast

from fakes.virtual_time import now, virtual_time

from ingest.domain.fetch.listed import ListedPage, PageRequest
from ingest.flow.followed_controls import SourceControls
from ingest.services.lists.poller import YieldingList

SINCE = datetime(2026, 10, 1, tzinfo=UTC)


class Orders:
    """The requests for orders, and a list. The API requests a pause, or orders wait, until a time."""

    def __init__(self, *, paused_for: float = 0.0, waiting_for: float = 0.0) -> None:
        self.paused_until, self.waiting_until = now() + paused_for, now() + waiting_for
        self.requested_after: float | None = None
        self.began = now()

    def is_paused(self) -> bool:
        return now() < self.paused_until

    @property
    def has_waiting(self) -> bool:
        return now() < self.waiting_until

    async def page(self, *_: object) -> ListedPage:
        self.requested_after = now() - self.began
        return ListedPage(())


async def requested_after(orders: Orders) -> float:
    listed = YieldingList(cast("Any", orders), cast("Any", orders), SourceControls(), cast("Any", orders))
    await listed.page(PageRequest(SINCE))
    assert orders.requested_after is not None
    return orders.requested_after


@virtual_time
async def test_a_page_waits_while_orders_wait_for_the_quota() -> None:
    assert await requested_after(Orders()) == 0
    assert 10 <= await requested_after(Orders(waiting_for=10)) < 11


@virtual_time
async def test_orders_that_always_wait_delay_a_page_for_half_a_minute() -> None:
    assert 29 < await requested_after(Orders(waiting_for=1e6)) < 31


@virtual_time
async def test_a_page_is_not_requested_while_the_api_asks_to_wait() -> None:
    assert 500 <= await requested_after(Orders(paused_for=500, waiting_for=1e6)) < 501
