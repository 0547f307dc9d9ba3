"""The report of a reconciliation: what has become of the accepted orders, in numbers, and by name where something is wrong."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """How many orders, and the first of them by name."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return ", ".join(self.examples) + (f" and {more:,} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationReport:
    """Where the accepted orders are.

    Attributes:
        accepted: orders that were certainly accepted, each counted once; the sum of the six that follow.
        stored: of them, those with a row in `orders`.
        dead: those in the dead letters.
        both: those with a row and a dead letter.
        erased: those that were erased, and not stored again.
        queued: those that are in the queue, and in none of these locations.
        lost: those that are nowhere.
        unconfirmed: orders whose announcement failed or was cut off, so that they may have arrived or not.
        arrived: of them, those that are somewhere.
        waiting: entries of the stream that have not been delivered yet.
        pending: entries that were delivered to a worker, alive or dead.
        retrying: entries in the retry set.
        dead_letters: entries of the dead-letter stream by reason.
        compared: orders for which the expected result is known.
        wrong: those of them whose result differs, with what differs.
        unexpected: orders with a row or a dead letter that nobody accepted.
    """

    accepted: int
    stored: int
    dead: int
    both: int
    erased: int
    queued: int
    lost: Listed
    unconfirmed: int
    arrived: int
    waiting: int
    pending: int
    retrying: int
    dead_letters: Mapping[str, int]
    compared: int
    wrong: Listed
    unexpected: Listed

    @property
    def is_sound(self) -> bool:
        """Whether no order is lost, wrong or unexpected."""
        return not (self.lost.count or self.wrong.count or self.unexpected.count)

    @property
    def is_settled(self) -> bool:
        """Whether the queue is empty, so that the report is final."""
        return not (self.waiting or self.pending or self.retrying)

    def as_dict(self) -> dict[str, Any]:
        """The report for a script."""
        return {"sound": self.is_sound, "settled": self.is_settled, **asdict(self)}

    def __str__(self) -> str:
        # Another program may have written a reason of any characters, or none.
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
        verdict = "sound" if self.is_sound else "NOT SOUND"
        return "\n".join([*lines, verdict if self.is_settled else f"{verdict}, so far"])
