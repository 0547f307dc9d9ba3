"""Reconciles accepted orders: determines where each order is now, and whether its row is correct.

    accepted IDs ──▶ ledger ◀── stream, retry set, dead letters (Redis) ◀── orders, erased orders (PostgreSQL)

It may run concurrently with workers. Locations are read in the direction in which orders move, so that a moving order is not missed.
An order that seems lost, or whose row seems wrong, is checked several times before it is reported. Reconciling is read-only and
leaves no trace if the process dies.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from functools import partial

from ingest.domain.orders.order import parse_order_id
from ingest.domain.orders.reconciliation import MAX_EXAMPLES, ListedOrders, ReconciliationReport
from ingest.operations.backends import Backends
from ingest.operations.reconcile.ledger import SOMEWHERE, Ledger, LedgerClaim, Seen
from ingest.operations.reconcile.scan import Ask, Expected, Scan, look_up, open_places
from ingest.queue.operate.scanner import Location
from ingest.store.orders.rows import Rows

__all__ = ["Backends", "Expected", "ListedOrders", "ReconciliationReport", "reconcile"]

_CHUNK = 1000

Ids = Iterable[str] | AsyncIterable[str]


async def reconcile(
    accepted: Ids,
    backends: Backends,
    *,
    unconfirmed: Ids = (),
    expected: Mapping[str, Expected] | Ask | None = None,
    complete: bool = False,
    on_lost: Callable[[str], None] | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ReconciliationReport:
    """Report where each accepted order is.

    Args:
        accepted: IDs for which `enqueue` has returned, possibly with duplicates. Read to the end before the first scan.
        backends: the servers to search, and the source of the orders.
        unconfirmed: IDs whose `enqueue` failed or was interrupted, so that they may or may not have been accepted.
        expected: a mapping by ID, or a function, of expected results. None if it is unknown. An order that is still
            queued is not compared.
        complete: whether `accepted` lists every order ever accepted, so that other orders are unexpected.
        on_lost: called with the ID of each lost order in sorted order, after the last scan.
        on_progress: called with the number of orders checked so far and the total.

    Raises:
        InvalidOrderId: one of the IDs cannot have been accepted.
        Unavailable: Redis or PostgreSQL cannot be used right now.
        UserError: Redis or PostgreSQL denies access, or the disk space does not suffice for the ledger.
    """
    with Ledger.open() as ledger:
        await _fill(ledger, accepted, LedgerClaim.ACCEPTED)
        await _fill(ledger, unconfirmed, LedgerClaim.UNCONFIRMED)
        async with open_places(backends) as places:
            scan = Scan(
                ledger, places.scanner, partial(look_up, ledger, places.rows, _as_function(expected)), on_progress
            )
            await scan.repeatedly()
            unexpected = await _find_unexpected(ledger, places.rows) if complete else ListedOrders()
        if on_lost is not None:
            for order_id in ledger.lost():
                on_lost(order_id)
        return _report(ledger, scan, unexpected)


async def _fill(ledger: Ledger, ids: Ids, claim: LedgerClaim) -> None:
    some: list[str] = []
    async for order_id in ids if isinstance(ids, AsyncIterable) else _each(ids):
        some.append(parse_order_id(order_id))
        if len(some) == _CHUNK:
            ledger.add(some, claim)
            some.clear()
    ledger.add(some, claim)


async def _each(ids: Iterable[str]) -> AsyncIterator[str]:
    for order_id in ids:
        yield order_id


def _as_function(expected: Mapping[str, Expected] | Ask | None) -> Ask | None:
    if not isinstance(expected, Mapping):
        return expected

    async def look_up(order_id: str) -> Expected | None:
        return expected.get(order_id)

    return look_up


def _report(ledger: Ledger, scan: Scan, unexpected: ListedOrders) -> ReconciliationReport:
    """Count the orders by location."""
    accepted, unconfirmed = ledger.tally(LedgerClaim.ACCEPTED), ledger.tally(LedgerClaim.UNCONFIRMED)
    in_both = Seen.STORED | Seen.DEAD

    def having(mask: Seen, seen: Seen) -> int:
        return sum(count for flags, count in accepted.items() if flags & mask == seen)

    return ReconciliationReport(
        accepted=accepted.total(),
        stored=having(in_both, Seen.STORED),
        dead=having(in_both, Seen.DEAD),
        both=having(in_both, in_both),
        erased=having(in_both | Seen.ERASED, Seen.ERASED),
        queued=having(SOMEWHERE, Seen.QUEUED),
        lost=ledger.listed((LedgerClaim.ACCEPTED, LedgerClaim.ACCEPTED), SOMEWHERE, Seen(0)),
        unconfirmed=unconfirmed.total(),
        arrived=sum(count for flags, count in unconfirmed.items() if flags & SOMEWHERE),
        waiting=scan.entries[Location.WAITING],
        pending=scan.entries[Location.PENDING],
        retrying=scan.entries[Location.RETRYING],
        dead_letters=dict(scan.dead_letters),
        compared=sum(count for flags, count in (accepted + unconfirmed).items() if flags & Seen.COMPARED),
        wrong=ledger.listed((LedgerClaim.UNCONFIRMED, LedgerClaim.ACCEPTED), Seen.WRONG, Seen.WRONG),
        unexpected=unexpected,
    )


async def _find_unexpected(ledger: Ledger, rows: Rows) -> ListedOrders:
    """Find the orders with a row or a dead letter that were not accepted. Orders with a row come first."""
    count, examples = 0, list[str]()
    async for page in rows.all_ids():
        unexpected = ledger.unexpected(page)
        ledger.mark(unexpected, Seen.STORED)
        count += len(unexpected)
        examples += unexpected[: MAX_EXAMPLES - len(examples)]
    without_row = ledger.listed((LedgerClaim.NONE, LedgerClaim.NONE), Seen.STORED, Seen(0))
    return ListedOrders(count + without_row.count, (*examples, *without_row.examples)[:MAX_EXAMPLES])
