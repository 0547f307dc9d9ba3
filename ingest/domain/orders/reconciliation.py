"""The report of a reconciliation, which counts the accepted orders by location and names the missing and wrong orders."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class ListedOrders:
    """A number of orders, with the first IDs as examples."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return ", ".join(self.examples) + (f" and {more:,} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationReport:
    """The locations of the accepted orders.

    Attributes:
        accepted: orders that were certainly accepted, each counted once. It is the sum of the next six numbers.
        stored: orders with only a row in `orders`.
        dead: orders with only a dead letter.
        both: orders with a row and a dead letter.
        erased: orders that were erased and not stored again.
        queued: orders found only in the queue.
        lost: orders that were not found.
        unconfirmed: orders whose enqueueing failed or was interrupted, so that they may or may not have arrived.
        arrived: unconfirmed orders that were found.
        waiting: entries of the stream that have not been delivered yet.
        pending: entries that were delivered to a worker, alive or dead.
        retrying: entries in the retry set.
        dead_letters: entries of the dead-letter stream by reason.
        compared: orders with a known expected result.
        wrong: compared orders with a different result, with the differences.
        unexpected: orders with a row or a dead letter that were not accepted.
    """

    accepted: int
    stored: int
    dead: int
    both: int
    erased: int
    queued: int
    lost: ListedOrders
    unconfirmed: int
    arrived: int
    waiting: int
    pending: int
    retrying: int
    dead_letters: Mapping[str, int]
    compared: int
    wrong: ListedOrders
    unexpected: ListedOrders

    @property
    def is_clean(self) -> bool:
        """Whether no order is lost, wrong or unexpected."""
        return not (self.lost.count or self.wrong.count or self.unexpected.count)

    @property
    def is_settled(self) -> bool:
        """Whether the queue is empty, so that the report is final."""
        return not (self.waiting or self.pending or self.retrying)

    def as_dict(self) -> dict[str, Any]:
        """Return the report for a script."""
        return {"clean": self.is_clean, "settled": self.is_settled, **asdict(self)}

    def __str__(self) -> str:
        # Another program may have written a reason with any characters, or an empty reason.
        by_reason = (
            (" ".join(reason.split()) or "without a reason", count) for reason, count in self.dead_letters.items()
        )
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(by_reason))
        queued = f"entries: {self.waiting:,} waiting, {self.pending:,} pending, {self.retrying:,} scheduled for retry"
        rows = [
            ("accepted", self.accepted, ""),
            ("stored", self.stored, ""),
            ("dead letters", self.dead, reasons and f"entries: {reasons}"),
            ("stored and dead", self.both, ""),
            ("erased", self.erased, ""),
            ("queued", self.queued, "" if self.is_settled else queued),
            ("LOST", self.lost.count, str(self.lost)),
            ("wrong", self.wrong.count, str(self.wrong) or f"of {self.compared:,} compared"),
            ("unexpected", self.unexpected.count, str(self.unexpected)),
        ]
        if self.unconfirmed:
            rows.insert(1, ("unconfirmed", self.unconfirmed, f"of which {self.arrived:,} have arrived"))
        lines = [f"{label:<16}{count:>12,}  {note}".rstrip() for label, count, note in rows]
        verdict = "clean" if self.is_clean else "NOT CLEAN"
        return "\n".join([*lines, verdict if self.is_settled else f"{verdict}, so far"])
