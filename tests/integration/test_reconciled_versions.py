"""Orders whose documents contain no time of their last change, in a reconciliation with a list that contains it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from fakes.listed_orders import MemoryQueue

from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.domain.orders.order import Order
from ingest.domain.orders.order_row import OrderRow
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.operations.reconcile.listed import Listing, Progress, reconcile_list
from ingest.operations.reconcile.scan import Places
from ingest.store.orders.order_store import OrderStore
from ingest.store.orders.rows import Rows

MINUTE = timedelta(minutes=1)


class TwoOrders:
    """A list whose shop's clock is behind ours: one order has changed a minute before it was fetched, the other one a minute after."""

    shape = ListShape(has_times=True)

    def __init__(self, fetched_at: datetime, ahead: timedelta) -> None:
        self._fetched_at = fetched_at - ahead
        self._ahead = ahead

    async def page(self, _: PageRequest) -> ListedPage:
        """See `OrderList`."""
        listed = [ListedOrder("same", self._fetched_at - MINUTE), ListedOrder("older", self._fetched_at + MINUTE)]
        return ListedPage(listed, 2, sent_at=datetime.now(UTC) - self._ahead)


@pytest.mark.parametrize("ahead", [10 * MINUTE, timedelta(), -10 * MINUTE])
async def test_the_time_of_a_fetch_is_compared_by_the_clock_of_the_shop(dsn: str, ahead: timedelta) -> None:
    now = datetime.now(UTC)
    fetched_at = now - 30 * MINUTE
    listing = Listing(TwoOrders(fetched_at, ahead), now - timedelta(days=1), now, is_complete=False)
    async with OrderStore.open(dsn) as store, Rows.open(dsn) as rows:
        for name in ("same", "older"):
            order = Order(name, "placed", "GBP", now - timedelta(days=1), (), None)
            await store.upsert([OrderRow.of(order, fetched_at, attempts=1, enqueued_at=0.0)])

        @asynccontextmanager
        async def opened() -> AsyncIterator[Places]:
            yield Places(cast("Any", MemoryQueue(lambda: now)), rows)

        with ListLedger.open() as ledger:
            report = await reconcile_list(listing, opened, ledger, Progress())

    assert (report.equal, report.outdated.count) == (1, 1)
