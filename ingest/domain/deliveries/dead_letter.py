"""A dead letter, and a selection of dead letters."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingest.domain.deliveries.entry_filter import EntryFilter


class InvalidSelection(ValueError):
    """A selection without criteria, or with contradictory criteria."""


StoredSince = Callable[[Mapping[str, datetime]], Awaitable[Collection[str]]]
"""Takes orders with the times of their dead letters, and returns the orders whose stored document was requested later."""


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """One dead letter. In its texts, bytes that are not UTF-8 are shown as backslash escapes.

    Attributes:
        entry_id: its ID in the dead-letter stream, `milliseconds-sequence`.
        order_id: as in the entry, even if invalid, or None without an ID.
        reason: a `DeadReason`, unless another program wrote it.
        dead_at: when it was dead-lettered, by Redis' clock.
        worker: the consumer that dead-lettered it.
        replays: how often it was replayed before.
        fields: all other fields, unchanged.
        seen: how often the order was dead-lettered for the same reason with the same content while this dead letter existed.
        last_seen_at: the last time, if there were several.
    """

    entry_id: str
    order_id: str | None
    reason: str
    error: str
    attempts: int | None
    dead_at: datetime
    first_enqueued_at: datetime | None
    worker: str | None
    replays: int
    replayed_at: datetime | None
    fields: Mapping[bytes, bytes]
    seen: int = 1
    last_seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The dead letters that match every given criterion.

    Attributes:
        ids: IDs of entries or orders, of which one must match. Order IDs may look like entry IDs.
        reasons: reasons, of which one must match.
        since: dead-lettered at this time or later.
        until: dead-lettered before this time.
        everything: all dead letters. It is explicit, so that an empty list of criteria never selects everything.
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

    def names(self, entry: DeadLetterEntry) -> frozenset[str]:
        """Return the selected IDs that match this dead letter by its entry ID or order ID."""
        return self.ids & {entry.entry_id, entry.order_id or entry.entry_id}

    def matches(self, entry: DeadLetterEntry) -> bool:
        """Return whether this dead letter matches."""
        return (
            (not self.ids or bool(self.names(entry)))
            and (not self.reasons or entry.reason in self.reasons)
            and (self.since is None or entry.dead_at >= self.since)
            and (self.until is None or entry.dead_at < self.until)
            and (not self.filter or self.filter.matches(entry.order_id, entry.error, entry.fields, entry.worker))
        )
