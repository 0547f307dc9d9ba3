"""A selection of orders that wait for their next attempt."""

from dataclasses import dataclass, field
from datetime import datetime

from ingest.domain.deliveries.dead_letter import InvalidSelection
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.orders.order_state import RetryEntry


@dataclass(frozen=True, slots=True)
class RetrySelection:
    """The retries that match every given criterion.

    Attributes:
        ids: IDs of orders, of which one must match.
        reasons: reasons, of which one must match (see `RetryReason`).
        everything: all retries. It is explicit, so that an empty list of criteria never selects everything.
        since: enqueued at this time or later.
        until: enqueued before this time.
        filter: criteria on the error and the fields of the entry.

    Raises:
        InvalidSelection: if there is no criterion, a criterion with `everything`, or no time between `since` and `until`.
    """

    ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    everything: bool = False
    since: datetime | None = None
    until: datetime | None = None
    filter: EntryFilter = field(default_factory=EntryFilter)

    def __post_init__(self) -> None:
        if bool(self.ids or self.reasons or self.since or self.until or self.filter) == self.everything:
            raise InvalidSelection("a selection needs either criteria or everything")
        if self.since and self.until and self.since >= self.until:
            raise InvalidSelection("since must be before until")

    def matches(self, entry: RetryEntry) -> bool:
        """Return whether this entry matches."""
        return (
            (not self.ids or entry.order_id in self.ids)
            and (not self.reasons or entry.reason in self.reasons)
            and (self.since is None or (entry.announced_at is not None and entry.announced_at >= self.since))
            and (self.until is None or (entry.announced_at is not None and entry.announced_at < self.until))
            and (not self.filter or self.filter.matches(entry.order_id, entry.error, entry.fields))
        )
