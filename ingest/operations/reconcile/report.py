"""Makes the report of a reconciliation from the ledger and the last scan."""

from ingest.domain.orders.reconciliation import MAX_EXAMPLES, ListedOrders, ReconciliationReport
from ingest.operations.reconcile.ledger import SOMEWHERE, Ledger, LedgerClaim, Seen
from ingest.operations.reconcile.scan import Scan
from ingest.queue.operate.scanner import Location
from ingest.store.orders.rows import Rows


def report(ledger: Ledger, scan: Scan, unexpected: ListedOrders) -> ReconciliationReport:
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


async def find_unexpected(ledger: Ledger, rows: Rows) -> ListedOrders:
    """Find the orders with a row or a dead letter that were not accepted. Orders with a row come first."""
    count, examples = 0, list[str]()
    async for page in rows.all_ids():
        unexpected = ledger.unexpected(page)
        ledger.mark(unexpected, Seen.STORED)
        count += len(unexpected)
        examples += unexpected[: MAX_EXAMPLES - len(examples)]
    without_row = ledger.listed((LedgerClaim.NONE, LedgerClaim.NONE), Seen.STORED, Seen(0))
    return ListedOrders(count + without_row.count, (*examples, *without_row.examples)[:MAX_EXAMPLES])
