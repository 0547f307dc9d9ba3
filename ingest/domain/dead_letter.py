"""A dead letter, and which of them are meant."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


class InvalidSelection(ValueError):
    """A selection that names nothing, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """One buried entry. Texts come from outside; bytes that are not UTF-8 stand in them as backslash escapes.

    Attributes:
        entry_id: its ID among the dead letters, `milliseconds-sequence`.
        order_id: as the entry names it, valid or not; None if it names none.
        reason: a `DeadReason`, unless another program buried it.
        error: what went wrong, for people.
        attempts: how many tries at the order came before.
        dead_at: when it was buried, by Redis' clock.
        first_enqueued_at: when the order was first announced.
        worker: the consumer that buried it.
        replays: how often it was put back into the queue before this.
        replayed_at: when it was, the last time.
        fields: all others, which its producers wrote, as they stand there.
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


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are meant: those that meet every criterion given.

    Attributes:
        ids: IDs of entries or of orders, any of them; order IDs may look like entry IDs.
        reasons: any of them.
        since: buried at this moment or later.
        until: buried before this moment.
        everything: all there are. Has to be said, so that an empty list of criteria is never taken for it.

    Raises:
        InvalidSelection: if there is no criterion, one beside `everything`, or no time between `since` and `until`.
    """

    ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        criteria = bool(self.ids or self.reasons or self.since or self.until)
        if criteria == self.everything:
            raise InvalidSelection("a selection is by criteria, or everything")
        if self.since and self.until and self.since >= self.until:
            raise InvalidSelection("nothing was buried at or after a moment and before an earlier one")

    def names(self, letter: DeadLetterEntry) -> frozenset[str]:
        """Those of the IDs that stand for this dead letter: none, one, or both of its own."""
        return self.ids & {letter.entry_id, letter.order_id or letter.entry_id}

    def matches(self, letter: DeadLetterEntry) -> bool:
        """Whether this dead letter is meant."""
        return (
            (not self.ids or bool(self.names(letter)))
            and (not self.reasons or letter.reason in self.reasons)
            and (self.since is None or letter.dead_at >= self.since)
            and (self.until is None or letter.dead_at < self.until)
        )
