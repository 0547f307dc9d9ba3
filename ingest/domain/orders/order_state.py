"""The state of an order in the database and in the queue, which may contain several entries of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from ingest.domain.deliveries.queue_state import Lane

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class IngestionState(StrEnum):
    """The current or last state of an order."""

    ERASED = "erased"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    QUEUED = "queued"
    DEAD = "dead"
    STORED = "stored"
    UNKNOWN = "unknown"
    NOT_FOUND = "not_found"


class QueuedEntry(msgspec.Struct, frozen=True, tag_field="state", tag="queued"):
    """An entry that waits for a worker.

    Attributes:
        announced_at: when the order was first enqueued.
    """

    entry_id: str
    lane: Lane
    announced_at: _Time
    attempt: int
    state = IngestionState.QUEUED


class InFlightEntry(msgspec.Struct, frozen=True, tag_field="state", tag="in_flight"):
    """An entry that a worker holds.

    Attributes:
        renewed_at: when it was delivered to the worker, or the worker last renewed its lease.
        deliveries: the number of deliveries.
    """

    entry_id: str
    lane: Lane
    announced_at: _Time
    attempt: int
    worker: str
    renewed_at: _Time
    deliveries: int
    state = IngestionState.IN_FLIGHT


@dataclass(frozen=True, slots=True)
class RetryEntry:
    """An entry that waits for its next attempt.

    Attributes:
        entry_id: its ID in the retry set, where bytes that are not UTF-8 are backslash escapes.
        name: its ID in Redis, as bytes.
        order_id: as in the entry, or None without an ID.
        next_try_at: when a worker moves it to the express lane.
        attempt: the number of the next attempt.
        reason: the `RetryReason` of the last failure, empty if unknown.
        fields: its other fields, as far as they were read.
    """

    entry_id: str
    name: bytes
    order_id: str | None
    announced_at: datetime | None
    next_try_at: datetime
    attempt: int
    reason: str
    error: str
    fields: Mapping[bytes, bytes] = field(default_factory=dict)
    state = IngestionState.RETRYING
    worker = None

    @property
    def ids(self) -> frozenset[str]:
        """The IDs that select it: the ID of its order."""
        return frozenset() if self.order_id is None else frozenset({self.order_id})

    @property
    def at(self) -> datetime | None:
        """When its order was first enqueued."""
        return self.announced_at


class DeadEntry(msgspec.Struct, frozen=True, tag_field="state", tag="dead"):
    """A dead letter.

    Attributes:
        reason: a `DeadReason`, unless another program wrote it.
    """

    entry_id: str
    announced_at: _Time | None
    dead_at: _Time
    attempts: int | None
    reason: str
    error: str
    state = IngestionState.DEAD


QueueEntry = QueuedEntry | InFlightEntry | RetryEntry | DeadEntry

# If an order has several entries, the first of these states is reported.
_FIRST = (IngestionState.IN_FLIGHT, IngestionState.RETRYING, IngestionState.QUEUED, IngestionState.DEAD)


@dataclass(frozen=True, slots=True)
class OrderState:
    """The complete state of one order.

    Attributes:
        source: the name of its source.
        row: its columns as JSON values, or None if it is not stored.
        entries: its entries in the queue.
        searched: whether the whole queue was searched.
        problem: the reason why the queue was not searched completely.
    """

    source: str
    order_id: str
    row: dict[str, Any] | None
    erased_at: datetime | None
    entries: Sequence[QueueEntry]
    searched: bool = True
    problem: str = ""

    @property
    def state(self) -> IngestionState:
        """The state that is reported first."""
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
        """Whether it was found in the database or the queue."""
        return self.row is not None or self.erased_at is not None or bool(self.entries)
