"""The report of a run of `remap`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.domain.orders.field_differences import FieldSummary
from ingest.store.orders.documents import Remapped

MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that stays unchanged because its document is unusable."""

    order_id: str
    reason: str
    error: str


@dataclass(slots=True)
class RemapReport:
    """The results so far. In a dry run, the changes that would be made.

    Attributes:
        examined: rows with a document.
        changed: rows that were replaced.
        unchanged: rows that are up to date.
        inserted: orders that a document yields for the first time.
        skipped: rows whose document no longer yields this order. They stay.
        newer: rows that were stored again during the run.
        failed: rows whose document is unusable. They stay.
        failures: the first failures.
        last: the last completed order ID, after which a run can be resumed.
        fields: in a dry run, the fields that would change.
    """

    examined: int = 0
    changed: int = 0
    unchanged: int = 0
    inserted: int = 0
    skipped: int = 0
    newer: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    last: str | None = None
    fields: FieldSummary = field(default_factory=FieldSummary)

    def add_failure(self, failure: Failure) -> None:
        """Count a row that cannot be rebuilt."""
        self.failed += 1
        if len(self.failures) < MAX_EXAMPLES:
            self.failures.append(failure)

    def add(self, outcomes: Sequence[Remapped | None]) -> None:
        """Count rows. None stands for a row that was erased during the run."""
        self.changed += outcomes.count(Remapped.CHANGED)
        self.unchanged += outcomes.count(Remapped.UNCHANGED)
        self.newer += outcomes.count(Remapped.NEWER) + outcomes.count(None)
