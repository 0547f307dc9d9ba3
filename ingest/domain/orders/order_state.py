"""Where an order is: in the database, and in the queue, where it may be several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ingest.domain.deliveries.queue_state import Lane


class IngestionState(StrEnum):
    """What is happening to an order, or was last."""

    ERASED = "erased"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    QUEUED = "queued"
    DEAD = "dead"
    STORED = "stored"
    UNKNOWN = "unknown"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    """An entry that waits for a worker.

    Attributes:
        announced_at: when the order was first announced.
    """

    entry_id: str
    lane: Lane
    announced_at: datetime
    attempt: int
    state = IngestionState.QUEUED


@dataclass(frozen=True, slots=True)
class InFlightEntry:
    """An entry that a worker holds.

    Attributes:
        renewed_at: when it was delivered to the worker, or the worker last renewed its lease.
        deliveries: how often it was delivered.
    """

    entry_id: str
    lane: Lane
    announced_at: datetime
    attempt: int
    worker: str
    renewed_at: datetime
    deliveries: int
    state = IngestionState.IN_FLIGHT


@dataclass(frozen=True, slots=True)
class RetryEntry:
    """An entry that waits for its next attempt.

    Attributes:
        entry_id: under which it waits; bytes that are not UTF-8 are backslash escapes.
        name: the same, as Redis has it.
        order_id: as in the entry; None if it has none.
        next_try_at: when a worker moves it to the express lane.
        attempt: which attempt the next one is.
        reason: why the last one failed, a `RetryReason`; empty if that is not known.
        error: what went wrong, for people.
    """

    entry_id: str
    name: bytes
    order_id: str | None
    announced_at: datetime | None
    next_try_at: datetime
    attempt: int
    reason: str
    error: str
    state = IngestionState.RETRYING


@dataclass(frozen=True, slots=True)
class DeadEntry:
    """A dead letter.

    Attributes:
        reason: a `DeadReason`, unless another program wrote it.
        error: what went wrong, for people.
    """

    entry_id: str
    announced_at: datetime | None
    dead_at: datetime
    attempts: int | None
    reason: str
    error: str
    state = IngestionState.DEAD


QueueEntry = QueuedEntry | InFlightEntry | RetryEntry | DeadEntry

# Which of several is told first: what happens now, before what waits, before what has ended.
_FIRST = (IngestionState.IN_FLIGHT, IngestionState.RETRYING, IngestionState.QUEUED, IngestionState.DEAD)


@dataclass(frozen=True, slots=True)
class OrderState:
    """All that is known of one order.

    Attributes:
        row: its columns as JSON values; None if it is not stored.
        erased_at: when it was erased; None if it was not.
        entries: where it is in the queue.
        searched: whether all of the queue was searched; if not, `problem` says why.
        problem: why not.
    """

    order_id: str
    row: dict[str, Any] | None
    erased_at: datetime | None
    entries: Sequence[QueueEntry]
    searched: bool = True
    problem: str = ""

    @property
    def state(self) -> IngestionState:
        """What is happening to it."""
        if self.erased_at is not None:
            return IngestionState.ERASED
        states = {entry.state for entry in self.entries}
        for state in _FIRST:
            if state in states:
                return state
        if not self.searched:
            return IngestionState.UNKNOWN
        return IngestionState.NOT_FOUND if self.row is None else IngestionState.STORED

    @property
    def is_known(self) -> bool:
        """Whether it is anywhere."""
        return self.row is not None or self.erased_at is not None or bool(self.entries)
