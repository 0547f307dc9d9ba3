"""The report of a reconciliation with the shop's list."""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ingest.domain.fetch.list_gaps import ListGaps, maybe_skipped
from ingest.domain.orders.reconciliation import ListedOrders


class DifferenceKind(StrEnum):
    """How an order differs between the shop's list and the database, or that they could not be compared."""

    MISSING = "missing"
    OUTDATED = "outdated"
    TOTAL = "total"
    NOT_COMPARED = "not_compared"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Difference:
    """An order that differs.

    Attributes:
        listed_at: time of its last change in the shop's list, or None if it is not listed.
        stored_at: time of its last change in the database, or None if it is not stored.
        total_difference: by which its lines do not add up to the total of its document. Empty if they do.
        listed_total: its total in the shop's list. Empty unless it differs from `stored_total`.
        stored_total: the total of its stored document. Empty unless it differs from `listed_total`.
    """

    order_id: str
    kind: DifferenceKind
    listed_at: datetime | None = None
    stored_at: datetime | None = None
    total_difference: str = ""
    listed_total: str = ""
    stored_total: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for a report."""
        return {"difference" if name == "kind" else name: value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReconciliation:
    """The locations of the listed orders, and the differences.

    Attributes:
        listed: orders that the shop lists, each counted once. The next four numbers count their locations.
        stored: orders with a row.
        queued: orders without a row that are queued.
        dead: orders that have only a dead letter.
        erased: orders that were erased.
        gaps: parts of the list that could not be read or proven.
        missing: listed orders that were not found.
        outdated: orders with an older row, which are not queued.
        total: orders whose lines do not add up to the total of their document, or whose document does not have the listed total.
        equal: stored orders that were compared, and do not differ.
        not_compared: stored orders whose list entry has no readable time or total, or that may have changed without another time.
        unexpected: orders with a row that changed within the period and are not listed. None if they were not searched.
        enqueued: missing and outdated orders that were enqueued.
        unread_amounts: listed orders whose total cannot be read, and was not compared.
        skipped_documents: elements of the list that are no orders by the mapping. They are not compared.
        missing_or_skipped: missing orders of which the list does not show whether the mapping skips them.
    """

    since: datetime
    until: datetime
    listed: int
    stored: int
    queued: int
    dead: int
    erased: int
    gaps: ListGaps
    missing: ListedOrders
    outdated: ListedOrders
    total: ListedOrders
    equal: int
    not_compared: ListedOrders
    unexpected: ListedOrders | None
    enqueued: int = 0
    unread_amounts: int = 0
    skipped_documents: int = 0
    missing_or_skipped: int = 0

    @property
    def differences(self) -> dict[DifferenceKind, int]:
        """The number of orders of each kind of difference."""
        counts = {
            DifferenceKind.MISSING: self.missing.count,
            DifferenceKind.OUTDATED: self.outdated.count,
            DifferenceKind.TOTAL: self.total.count,
            DifferenceKind.NOT_COMPARED: self.not_compared.count,
        }
        return counts if self.unexpected is None else counts | {DifferenceKind.UNEXPECTED: self.unexpected.count}

    @property
    def is_clean(self) -> bool:
        """Whether the whole list was read, and all orders were compared and are equal."""
        return not any(self.differences.values()) and not self.not_proven

    @property
    def not_proven(self) -> list[str]:
        """The parts of the report that are not proven, in words."""
        return [*self.gaps.sentences, *filter(None, [maybe_skipped(self.missing_or_skipped)])]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for a script."""
        facts = {name: value for name, value in asdict(self).items() if name != "gaps"}
        gaps = self.gaps.as_dict() | {"not_proven": self.not_proven}
        return {"clean": self.is_clean, **facts, "skipped": self.gaps.unusable, **gaps}

    @property
    def _unread(self) -> str:
        return f"{self.unread_amounts:,} with an unreadable total" if self.unread_amounts else ""

    def __str__(self) -> str:
        rows = [
            ("listed", self.listed, self._unread),
            *([("no orders", self.skipped_documents, "skipped by the mapping")] if self.skipped_documents else []),
            ("stored", self.stored, ""),
            ("queued", self.queued, ""),
            ("dead letters", self.dead, ""),
            ("erased", self.erased, ""),
            ("MISSING", self.missing.count, str(self.missing)),
            ("outdated", self.outdated.count, str(self.outdated)),
            ("total differs", self.total.count, str(self.total)),
            ("equal", self.equal, ""),
            ("not compared", self.not_compared.count, str(self.not_compared)),
        ]
        if self.unexpected is not None:
            rows.append(("unexpected", self.unexpected.count, str(self.unexpected)))
        lines = [f"{label:<16}{count:>12,}  {note}".rstrip() for label, count, note in rows]
        lines += [f"NOT PROVEN      {sentence}" for sentence in self.not_proven]
        lines += [self.gaps.note] if self.gaps.note else []
        return "\n".join([*lines, "clean" if self.is_clean else "NOT CLEAN"])
