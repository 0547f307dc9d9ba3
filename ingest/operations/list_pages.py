"""Reads a shop's list page by page, for polling, backfills and reconciliation, as `ingest.domain.fetch.reading` decides.

Reading has no side effects. If the process dies here, it is repeated from the place of its last page.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, UNKNOWN_VERSION, Announcement
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    ListFault,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TransientFault,
)
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.fetch.listed import ListedOrder, ListedPage, OrderList
from ingest.domain.fetch.reading import Reading

REJECTIONS = (CredentialFault, PermanentFault, ListFault)
"""Faults that end only if the operator or the shop changes something."""

_MOST_REJECTIONS = 5
FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# A page is divided after three failures, and again after 30 further ones.
_FAILURES, _FURTHER_FAILURES = 3, 30

OnWait = Callable[[str], None]
Page = tuple[ListedPage, Sequence[ListedOrder]]
"""A page, and its orders that this reading has not returned before."""


def utc_now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


async def pages_of(
    listed: OrderList,
    reading: Reading,
    *,
    pause_after: Callable[[Fault, int], float | None],
    on_wait: OnWait = lambda _: None,
    now: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Page]:
    """Yield the pages of a reading. A page that fails several times is divided, if the list has smaller pages.

    Args:
        listed: the list.
        reading: decides which page is requested.
        pause_after: returns the seconds until a request is repeated, given its fault and how often it has failed. None to give up.
        on_wait: called with the error before each pause.
        now: our clock.

    Raises:
        Fault: the list cannot be read.
    """
    failures = 0
    while (request := reading.request) is not None:
        requested_at = now()
        try:
            page = await listed.page(request)
        except Fault as error:
            failures += request.size is None
            if _may_be_of_an_order(error) and failures % _FURTHER_FAILURES == _FAILURES and reading.divide():
                failures = _left(failures, reading)
                continue
            pause = pause_after(error, failures)
            if pause is None:
                raise
            on_wait(str(error))
            await asyncio.sleep(pause)
            continue
        orders = reading.take(page, page.sent_at or requested_at)
        failures = _left(failures, reading)
        yield page, orders


def _left(failures: int, reading: Reading) -> int:
    """Return the failures that still count. Those of a page end with its last part, so that the next page can be divided as well."""
    following = reading.request
    return failures if following is not None and following.size is not None else 0


def persistently(first_pause: float = FIRST_PAUSE) -> Callable[[Fault, int], float | None]:
    """Return the pauses of a reading that waits while the shop is unavailable or throttles, and gives up after some rejections."""

    def pause_after(error: Fault, failures: int) -> float | None:
        if isinstance(error, ThrottledFault | PostponedFault) and error.after is not None:
            return error.after
        if isinstance(error, REJECTIONS) and failures >= _MOST_REJECTIONS:
            return None
        return exponential_pause(first_pause, _LONGEST_PAUSE, failures - 1)

    return pause_after


def briefly(listed: OrderList) -> Callable[[Fault, int], float | None]:
    """Return the pauses of a reading that another one follows soon. Only a page that can be divided is requested again."""

    def pause_after(error: Fault, failures: int) -> float | None:
        if listed.shape.is_divisible and _may_be_of_an_order(error) and failures < _FAILURES:
            return FIRST_PAUSE * failures
        return None

    return pause_after


def _may_be_of_an_order(error: Fault) -> bool:
    """Whether one order on a page may cause the fault of the page."""
    return (isinstance(error, TransientFault) and error.reached and error.uses_attempt) or isinstance(error, ListFault)


def within(orders: Sequence[ListedOrder], since: datetime, until: datetime | None = None) -> list[ListedOrder]:
    """Return the orders whose change is within the period, or whose time is not listed, each once, with its last time.

    Documents that are no orders by the mapping are left out.
    """
    found: dict[str, ListedOrder] = {}
    for order in orders:
        if order.is_skipped or not order.is_within(since, until):
            continue
        known = found.get(order.order_id)
        if known is None or known.updated_at is None or (order.updated_at or since) >= known.updated_at:
            found[order.order_id] = order
    return list(found.values())


def announced(order: ListedOrder, origin: str) -> Announcement:
    """Return the announcement of a listed order, with its document if the list contains it and the queue may hold it."""
    document = order.document
    fits = document is not None and len(document) <= DOCUMENT_LIMIT
    expected = order.updated_at or UNKNOWN_VERSION
    return Announcement(order.order_id, document if fits else None, origin=origin, expected_version=expected)
