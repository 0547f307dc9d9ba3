"""A selection of dead letters or retries."""

from dataclasses import dataclass, field
from datetime import datetime

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.errors import InvalidInput
from ingest.domain.orders.order_state import RetryEntry


class InvalidSelection(InvalidInput, ValueError):
    """A selection without criteria, or with contradictory criteria."""

    code = "invalid_selection"


FailedEntry = DeadLetterEntry | RetryEntry


@dataclass(frozen=True, slots=True)
class Selection:
    """The dead letters or retries that match every given criterion.

    Attributes:
        ids: IDs of dead letters or orders, of which one must match. Order IDs may look like the IDs of dead letters.
        reasons: reasons, of which one must match.
        since: dead-lettered at this time or later, or retries of orders that were first enqueued then.
        until: before this time.
        everything: all entries. It is explicit, so that an empty list of criteria never selects everything.
        filter: criteria on the error and the fields of the entry.

    Raises:
        InvalidSelection: if there is no criterion, a criterion with `everything`, or no time between `since` and `until`.
    """

    ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    filter: EntryFilter = field(default_factory=EntryFilter)

    def __post_init__(self) -> None:
        criteria = bool(self.ids or self.reasons or self.since or self.until or self.filter)
        if criteria == self.everything:
            raise InvalidSelection("a selection needs either criteria or everything")
        if self.since and self.until and self.since >= self.until:
            raise InvalidSelection("since must be before until")

    def names(self, entry: FailedEntry) -> frozenset[str]:
        """Return the selected IDs that match this entry."""
        return self.ids & entry.ids

    def matches(self, entry: FailedEntry) -> bool:
        """Return whether this entry matches."""
        return (
            (not self.ids or bool(self.names(entry)))
            and (not self.reasons or entry.reason in self.reasons)
            and (self.since is None or (entry.at is not None and entry.at >= self.since))
            and (self.until is None or (entry.at is not None and entry.at < self.until))
            and (not self.filter or self.filter.matches(entry.order_id, entry.error, entry.fields, entry.worker))
        )
