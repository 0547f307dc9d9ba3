"""The ledger of a reconciliation with the shop's list, which also records the times of the last changes and the totals."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice

from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.orders.list_reconciliation import Difference, DifferenceKind
from ingest.domain.orders.reconciliation import MAX_EXAMPLES, ListedOrders
from ingest.operations.reconcile.ledger import SOMEWHERE, Ledger, LedgerClaim, Seen
from ingest.store.orders.rows import StoredFacts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LISTED = f"claim = {LedgerClaim.ACCEPTED:d}"
# The total of an order with one of these is not compared with the list. A queued change may be of the same second.
_NOT_COMPARED = Seen.OUTDATED | Seen.QUEUED
_DIFFERING = _NOT_COMPARED | Seen.TOTAL_DIFFERS | Seen.LISTED_TOTAL_DIFFERS
# The condition of each kind of difference. An order has one kind, the first that applies.
_KINDS = {
    DifferenceKind.MISSING: f"{_LISTED} AND seen & {SOMEWHERE:d} = 0",
    DifferenceKind.OUTDATED: f"{_LISTED} AND seen & {Seen.OUTDATED | Seen.QUEUED:d} = {Seen.OUTDATED:d}",
    DifferenceKind.TOTAL: f"{_LISTED} AND (seen & {Seen.OUTDATED | Seen.TOTAL_DIFFERS:d} = {Seen.TOTAL_DIFFERS:d}"
    f" OR seen & {_NOT_COMPARED | Seen.LISTED_TOTAL_DIFFERS:d} = {Seen.LISTED_TOTAL_DIFFERS:d})",
    DifferenceKind.NOT_COMPARED: f"{_LISTED} AND seen & {_DIFFERING | Seen.STORED | Seen.NOT_COMPARED:d}"
    f" = {Seen.STORED | Seen.NOT_COMPARED:d}",
    DifferenceKind.UNEXPECTED: f"seen & {Seen.UNEXPECTED:d} <> 0",
}


class ListLedger(Ledger):
    """A ledger of listed orders."""

    def add_listed(self, orders: Sequence[ListedOrder], claim: LedgerClaim) -> None:
        """Add listed orders. If one is listed several times, its latest time and its total of that time count."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim, listed_at, listed_total, is_skipped) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET claim = max(claim, excluded.claim),"
            " listed_at = max(coalesce(listed_at, excluded.listed_at), coalesce(excluded.listed_at, listed_at)),"
            " listed_total = iif(listed_at > excluded.listed_at, listed_total, excluded.listed_total),"
            " is_skipped = excluded.is_skipped",
            (
                (order.order_id, claim, _number(order.updated_at), _text_of(order.amount), order.is_skipped)
                for order in orders
            ),
        )

    def record_stored(self, stored: Sequence[StoredFacts], clock: ListClock) -> None:
        """Record the rows of listed orders, and compare their times and totals."""
        compared = [(row, self._compared(row, clock)) for row in stored]
        self._execute_many(
            "UPDATE ids SET seen = seen | ?, stored_at = ?, total_difference = ?, stored_total = ? WHERE order_id = ?",
            (
                (seen, _number(row.version), row.total_difference, str(row.total), row.order_id)
                for row, seen in compared
            ),
        )

    def _compared(self, row: StoredFacts, clock: ListClock) -> Seen:
        """Return the result of the comparison of one order."""
        seen = Seen.STORED | (Seen.TOTAL_DIFFERS if row.total_difference else Seen(0))
        query = "SELECT listed_at, listed_total FROM ids WHERE order_id = ?"
        listed_at, listed_total = self._database.execute(query, (row.order_id,)).fetchone()
        at, amount = _time(listed_at), None if listed_total is None else Decimal(listed_total)
        if at is None:
            return seen | Seen.NOT_COMPARED
        if at > row.version:
            return seen | Seen.OUTDATED
        if (amount is not None and amount.is_nan()) or clock.may_have_changed(at, row.version, row.fetched_at):
            seen |= Seen.NOT_COMPARED
        if at == row.version and amount is not None and not amount.is_nan() and amount != row.total:
            seen |= Seen.LISTED_TOTAL_DIFFERS
        return seen

    def equal(self) -> int:
        """Count the stored orders of the period that were compared, and do not differ."""
        return self.count(Seen.STORED | _DIFFERING | Seen.NOT_COMPARED, Seen.STORED)

    def unread_amounts(self) -> int:
        """Count the orders of the period whose total in the list cannot be read."""
        return self._counted(f"{_LISTED} AND listed_total = 'NaN'")

    def skipped(self) -> int:
        """Count the listed documents that are no orders by the mapping."""
        return self._counted(f"claim = {LedgerClaim.UNCONFIRMED:d} AND is_skipped")

    def missing_or_skipped(self) -> int:
        """Count the missing orders of which the list does not show whether the mapping skips them."""
        return self._counted(f"{_KINDS[DifferenceKind.MISSING]} AND is_skipped IS NULL")

    def add_unexpected(self, stored: Iterable[StoredFacts]) -> None:
        """Record orders that are stored and not listed."""
        self._execute_many(
            "INSERT INTO ids (order_id, claim, seen, stored_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (order_id) DO UPDATE SET seen = seen | excluded.seen, stored_at = excluded.stored_at",
            ((row.order_id, LedgerClaim.NONE, Seen.UNEXPECTED, _number(row.version)) for row in stored),
        )

    def reset_findings(self) -> int:
        """See `Ledger`. Orders that seem outdated are reset as well."""
        reset = super().reset_findings()
        outdated = self._database.execute(f"UPDATE ids SET seen = 0 WHERE {_KINDS[DifferenceKind.OUTDATED]}")  # noqa: S608  our own condition
        return reset + outdated.rowcount

    def latest(self) -> datetime | None:
        """Return the time of the latest change in the list."""
        [[latest]] = self._database.execute("SELECT max(listed_at) FROM ids")
        return _time(latest)

    def count(self, mask: Seen, seen: Seen) -> int:
        """Count the orders of the period whose flags within the mask equal `seen`."""
        return self._counted(f"{_LISTED} AND seen & {mask:d} = {seen:d}")

    def examples(self, kind: DifferenceKind) -> ListedOrders:
        """Return the orders of one kind of difference."""
        found = islice(self.differences([kind]), MAX_EXAMPLES)
        return ListedOrders(self._counted(_KINDS[kind]), tuple(map(_text, found)))

    def differences(self, kinds: Sequence[DifferenceKind] = tuple(DifferenceKind)) -> Iterator[Difference]:
        """Return all differences of these kinds, by kind and order ID."""
        columns = "seen, listed_at, stored_at, total_difference, listed_total, stored_total"
        for kind in kinds:
            for page in self._pages(columns, _KINDS[kind]):
                for order_id, seen, listed_at, stored_at, difference, listed, total in page:
                    totals = (listed, total) if seen & Seen.LISTED_TOTAL_DIFFERS else ("", "")
                    yield Difference(order_id, kind, _time(listed_at), _time(stored_at), difference, *totals)


def _text(difference: Difference) -> str:
    match difference.kind:
        case DifferenceKind.OUTDATED:
            return f"{difference.order_id} (stored {difference.stored_at:%FT%TZ}, listed {difference.listed_at:%FT%TZ})"
        case DifferenceKind.TOTAL if difference.stored_total:
            return f"{difference.order_id} (stored {difference.stored_total}, listed {difference.listed_total})"
        case DifferenceKind.TOTAL:
            return f"{difference.order_id} (by {difference.total_difference})"
        case DifferenceKind.MISSING | DifferenceKind.UNEXPECTED | DifferenceKind.NOT_COMPARED:
            return difference.order_id


def _text_of(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _number(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _time(number: int | None) -> datetime | None:
    return None if number is None else _EPOCH + number * _MICROSECOND
