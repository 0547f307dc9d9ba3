"""Reads the pages of a shop's list, and waits while the external API is unavailable or throttles.

Reading has no side effects. If the process dies here, it is repeated from a cursor.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime

import msgspec

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement
from ingest.domain.errors import CredentialFault, Fault, ListFault, PermanentFault, PostponedFault, ThrottledFault
from ingest.domain.fetch.listed import ListedOrder, ListedPage, OrderList, pages_of

REJECTIONS = (CredentialFault, PermanentFault, ListFault)
"""Faults that end only if the operator or the shop changes something."""

_MOST_REJECTIONS = 5
FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


async def pages_from(
    listed: OrderList,
    since: datetime,
    until: datetime | None,
    cursor: str | None = None,
    *,
    on_wait: Callable[[str], None] = lambda _: None,
    first_pause: float = FIRST_PAUSE,
) -> AsyncIterator[ListedPage]:
    """Yield the pages from a cursor on. Transient failures are repeated without a limit, and rejections a few times.

    An order that is already on the page before is left out, unless it has changed.

    Args:
        listed: the list.
        since: start of the period.
        until: its end, or None for now.
        cursor: of the first page to read. None for the first one.
        on_wait: called with the error before each pause.
        first_pause: seconds after the first failure of a page. Further pauses are longer.

    Raises:
        CredentialFault: the external API rejects the credential.
        PermanentFault: it rejects the requests.
        ListFault: its responses are no pages of the list, or the pages repeat.
    """
    before: Mapping[str, datetime | None] = {}
    async for page in pages_of(_PersistentList(listed, on_wait, first_pause), since, until, cursor):
        orders = {order.order_id: order for order in page.orders}
        # Pages of a sorted list overlap.
        known, before = before, {name: order.updated_at for name, order in orders.items()}
        new = [order for name, order in orders.items() if name not in known or known[name] != order.updated_at]
        yield msgspec.structs.replace(page, orders=new)


class _PersistentList:
    """Implements `OrderList`, and repeats the request for a page after a failure."""

    def __init__(self, listed: OrderList, on_wait: Callable[[str], None], first_pause: float) -> None:
        self._listed = listed
        self._on_wait = on_wait
        self._first_pause = first_pause

    async def page(self, since: datetime, until: datetime | None, cursor: str | None) -> ListedPage:
        failures = 0
        while True:
            try:
                return await self._listed.page(since, until, cursor)
            except Fault as error:
                failures += 1
                if isinstance(error, REJECTIONS) and failures >= _MOST_REJECTIONS:
                    raise
                self._on_wait(str(error))
                await asyncio.sleep(_pause_after(error, failures, self._first_pause))


def _pause_after(error: Fault, failures: int, first: float) -> float:
    if isinstance(error, ThrottledFault | PostponedFault) and error.after is not None:
        return error.after
    return min(_LONGEST_PAUSE, first * 2.0 ** min(failures - 1, 10))


def within(page: ListedPage, since: datetime, until: datetime) -> list[ListedOrder]:
    """Return the orders of a page whose change is within the period, or whose time is not listed."""
    return [order for order in page.orders if is_within(order, since, until)]


def is_within(order: ListedOrder, since: datetime, until: datetime) -> bool:
    """Whether the change of an order is within the period, or its time is not listed."""
    return order.updated_at is None or since <= order.updated_at <= until


def announced(order: ListedOrder, origin: str) -> Announcement:
    """Return the announcement of a listed order, with its document if the list contains it and the queue may hold it."""
    document = order.document
    fits = document is not None and len(document) <= DOCUMENT_LIMIT
    return Announcement(order.order_id, document if fits else None, origin=origin)
