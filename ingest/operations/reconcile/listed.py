"""Reconciles the shop's list of a period with the queue and the stored orders.

    list ──▶ ledger ◀── stream, retry set, dead letters (Redis) ◀── orders, erased orders (PostgreSQL)

It may run concurrently with workers: see `ingest.operations.reconcile`. It is read-only and leaves no trace if the process dies.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.list_gaps import ListGaps
from ingest.domain.fetch.listed import OrderList
from ingest.domain.fetch.reading import Reading
from ingest.domain.orders.list_reconciliation import DifferenceKind, ListReconciliation
from ingest.operations.list_pages import pages_of, persistently, utc_now, within
from ingest.operations.reconcile.ledger import SOMEWHERE, LedgerClaim, Seen
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.operations.reconcile.scan import Places, Scan
from ingest.store.orders.rows import Rows

# Some lists contain a change only minutes later.
_LATE = timedelta(minutes=10)
_Period = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Listing:
    """The part of a shop's list to reconcile.

    Attributes:
        listed: the list.
        since: start of the period.
        until: its end, or None for now by the shop's clock. Both are inclusive.
        is_complete: whether the list contains every order that changed within the period, so that others are unexpected.
    """

    listed: OrderList
    since: datetime
    until: datetime | None = None
    is_complete: bool = True


@dataclass(slots=True)
class Progress:
    """The callbacks of a reconciliation.

    Attributes:
        on_listed: called with the number of orders that were read from the list so far.
        on_scan: called with the number of orders that were looked up so far and the total.
        on_wait: called with the error for which the list has to be read again.
    """

    on_listed: Callable[[int], None] = lambda _: None
    on_scan: Callable[[int, int], None] = lambda _done, _total: None
    on_wait: Callable[[str], None] = lambda _: None


async def reconcile_list(
    listing: Listing,
    opened: Callable[[], AbstractAsyncContextManager[Places]],
    ledger: ListLedger,
    progress: Progress,
) -> ListReconciliation:
    """Compare the list with the queue and the stored orders. The ledger has the details.

    Args:
        listing: the list.
        opened: opens the places to search, once the list is read.
        ledger: an empty one.
        progress: the callbacks.

    Raises:
        Fault: the list cannot be read.
        Unavailable: Redis or PostgreSQL cannot be used right now.
        UserError: Redis or PostgreSQL denies access, or the disk space does not suffice for the ledger.
    """
    gaps, clock, until = await _fill(ledger, listing, progress)
    skipped = ledger.skipped()
    async with opened() as places:
        look_up = partial(_look_up, ledger, places.rows, clock)
        await Scan(ledger, places.scanner, look_up, progress.on_scan).repeatedly()
        if listing.is_complete:
            await _find_unexpected(ledger, places.rows, listing.listed, (listing.since, until), clock, progress)
    return ListReconciliation(
        since=listing.since,
        until=until,
        listed=ledger.count(Seen(0), Seen(0)),
        stored=ledger.count(Seen.STORED, Seen.STORED),
        queued=ledger.count(Seen.STORED | Seen.ERASED | Seen.QUEUED, Seen.QUEUED),
        dead=ledger.count(SOMEWHERE, Seen.DEAD),
        erased=ledger.count(Seen.STORED | Seen.ERASED, Seen.ERASED),
        gaps=gaps,
        skipped_documents=skipped,
        missing_or_skipped=ledger.missing_or_skipped(),
        unread_amounts=ledger.unread_amounts(),
        missing=ledger.examples(DifferenceKind.MISSING),
        outdated=ledger.examples(DifferenceKind.OUTDATED),
        total=ledger.examples(DifferenceKind.TOTAL),
        equal=ledger.equal(),
        not_compared=ledger.examples(DifferenceKind.NOT_COMPARED),
        unexpected=ledger.examples(DifferenceKind.UNEXPECTED) if listing.is_complete else None,
    )


async def _fill(ledger: ListLedger, listing: Listing, progress: Progress) -> tuple[ListGaps, ListClock, datetime]:
    """Read the list into the ledger, and return its gaps, its clock, and the end of its period."""
    count, since, until, shape = 0, listing.since, listing.until, listing.listed.shape
    reading, ahead = Reading(shape, since, until), timedelta()
    async for page, orders in pages_of(listing.listed, reading, pause_after=persistently(), on_wait=progress.on_wait):
        ahead = utc_now() - page.sent_at if page.sent_at is not None else ahead
        until = until or utc_now() - ahead
        # Orders outside the period, and documents that are no orders, are not compared, but certainly exist.
        ledger.add_listed(orders, LedgerClaim.UNCONFIRMED)
        ledger.add_listed(within(orders, since - shape.unit, until), LedgerClaim.ACCEPTED)
        count += len(orders)
        progress.on_listed(count)
    return reading.gaps, ListClock(utc_now() - ahead, ahead, shape.unit), until or utc_now()


async def _look_up(ledger: ListLedger, rows: Rows, clock: ListClock, known: Mapping[str, tuple[int, str]]) -> None:
    """Find the rows of listed orders, and compare their times and totals. See `LookUp`."""
    stored = await rows.facts(list(known), clock)
    ledger.record_stored(stored, clock)
    ledger.mark(await rows.erased([*known.keys() - {row.order_id for row in stored}]), Seen.ERASED)


async def _find_unexpected(
    ledger: ListLedger, rows: Rows, listed: OrderList, period: _Period, clock: ListClock, progress: Progress
) -> None:
    """Record the orders that changed within the period by their rows, and are not listed."""
    if not await _unexpected(ledger, rows, period, clock):
        return
    # An order that has changed since the end of the period is not listed in it any more.
    later = Reading(listed.shape, period[1], None)
    async for _, orders in pages_of(listed, later, pause_after=persistently(), on_wait=progress.on_wait):
        ledger.add_listed(orders, LedgerClaim.UNCONFIRMED)
    for order_ids in await _unexpected(ledger, rows, period, clock):
        ledger.add_unexpected(await rows.facts(order_ids, clock))


async def _unexpected(ledger: ListLedger, rows: Rows, period: _Period, clock: ListClock) -> list[list[str]]:
    """Return the IDs of stored orders of the period without a claim, in pages."""
    since, until = period
    # The latest changes may not be listed yet, unless the list already contains later ones.
    listed_until = max(ledger.latest() or since, clock.now - _LATE)
    pages = [ledger.unexpected(page) async for page in rows.changed_ids(since, min(until, listed_until))]
    return [page for page in pages if page]
