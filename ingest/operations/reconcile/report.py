"""Makes the report of a reconciliation from the ledger and the last scan."""

from ingest.domain.orders.reconciliation import MAX_EXAMPLES, Listed, ReconciliationReport
from ingest.operations.reconcile.ledger import SOMEWHERE, Claim, Ledger, Seen
from ingest.operations.reconcile.scan import Scan
from ingest.queue.operate.scanner import Location
from ingest.store.orders.rows import Rows


def report(ledger: Ledger, scan: Scan, unexpected: Listed) -> ReconciliationReport:
    """Count the orders by location."""
    accepted, unconfirmed = ledger.tally(Claim.ACCEPTED), ledger.tally(Claim.UNCONFIRMED)
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
        lost=ledger.listed((Claim.ACCEPTED, Claim.ACCEPTED), SOMEWHERE, Seen(0)),
        unconfirmed=unconfirmed.total(),
        arrived=sum(count for flags, count in unconfirmed.items() if flags & SOMEWHERE),
        waiting=scan.entries[Location.WAITING],
        pending=scan.entries[Location.PENDING],
        retrying=scan.entries[Location.RETRYING],
        dead_letters=dict(scan.dead_letters),
        compared=sum(count for flags, count in (accepted + unconfirmed).items() if flags & Seen.COMPARED),
        wrong=ledger.listed((Claim.UNCONFIRMED, Claim.ACCEPTED), Seen.WRONG, Seen.WRONG),
        unexpected=unexpected,
    )


async def find_unexpected(ledger: Ledger, rows: Rows) -> Listed:
    """Find the orders with a row or a dead letter that were not accepted. Orders with a row come first."""
    count, examples = 0, list[str]()
    async for page in rows.all_ids():
        unexpected = ledger.unexpected(page)
        ledger.mark(unexpected, Seen.STORED)
        count += len(unexpected)
        examples += unexpected[: MAX_EXAMPLES - len(examples)]
    without_row = ledger.listed((Claim.NONE, Claim.NONE), Seen.STORED, Seen(0))
    return Listed(count + without_row.count, (*examples, *without_row.examples)[:MAX_EXAMPLES])
