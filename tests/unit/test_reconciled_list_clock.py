"""A reconciliation compares times of the shop with the shop's clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from fakes.listed_orders import MemoryOrders, MemoryQueue, MemoryRow

from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.domain.orders.list_reconciliation import ListReconciliation
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.operations.reconcile.listed import Listing, Progress, reconcile_list
from ingest.operations.reconcile.scan import Places


class List:
    """The list of a shop whose clock differs from ours."""

    shape = ListShape(has_times=True)

    def __init__(self, ahead: timedelta, *orders: ListedOrder) -> None:
        self._ahead = ahead
        self._orders = orders

    async def page(self, _: PageRequest) -> ListedPage:
        """See `OrderList`."""
        return ListedPage(self._orders, len(self._orders), sent_at=datetime.now(UTC) - self._ahead)


async def reconciled(listing: Listing, rows: MemoryOrders) -> ListReconciliation:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Places]:
        yield Places(cast("Any", MemoryQueue(lambda: datetime.now(UTC))), cast("Any", rows))

    with ListLedger.open() as ledger:
        return await reconcile_list(listing, opened, ledger, Progress())


@pytest.mark.parametrize(("minutes_ago", "unexpected"), [(5, 0), (60, 1)])
@pytest.mark.parametrize("ahead", [timedelta(minutes=30), timedelta(), timedelta(minutes=-30)])
async def test_a_change_that_the_list_may_not_show_yet_is_recent_by_the_clock_of_the_shop(
    ahead: timedelta, minutes_ago: int, unexpected: int
) -> None:
    now, rows = datetime.now(UTC), MemoryOrders()
    changed_at = now - ahead - timedelta(minutes=minutes_ago)
    rows.store("1", MemoryRow(changed_at, now, b""))
    report = await reconciled(Listing(List(ahead), now - timedelta(days=1), now + timedelta(hours=1)), rows)

    assert report.unexpected is not None
    assert report.unexpected.count == unexpected


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(), timedelta(minutes=-10)])
async def test_a_period_without_an_end_ends_now_by_the_clock_of_the_shop(ahead: timedelta) -> None:
    now = datetime.now(UTC)
    recent = ListedOrder("recent", now - ahead - timedelta(minutes=1))

    report = await reconciled(Listing(List(ahead, recent), now - timedelta(days=1)), MemoryOrders())

    assert (report.listed, report.missing.count) == (1, 1)
    assert abs(report.until - (now - ahead)) < timedelta(minutes=1)
