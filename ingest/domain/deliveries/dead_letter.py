"""A dead letter."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

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

    @property
    def ids(self) -> frozenset[str]:
        """The IDs that select it: its own, and the ID of its order."""
        return frozenset({self.entry_id, self.order_id or self.entry_id})

    @property
    def at(self) -> datetime:
        """When it was dead-lettered."""
        return self.dead_at
