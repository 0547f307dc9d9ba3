"""The events of the history of an order."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class HistoryEvent(StrEnum):
    """One kind of event in the history of an order.

    Attributes:
        ENQUEUED: a producer has enqueued it.
        REPLAYED: an operator has replayed its dead letter.
        INSERTED, CHANGED, UNCHANGED: a worker has fetched and stored it, with this effect on its row.
        SKIPPED: the transform has returned no order.
        RETRIED: an attempt has failed, and another one is scheduled.
        DEAD_LETTERED: an attempt has failed, and no other one is scheduled.
        REFETCHED: an operator has enqueued it again, regardless of its version.
        REMAPPED: an operator has rebuilt its row from the stored document.
        ERASED: an operator has erased it, with its history.
    """

    ENQUEUED = "enqueued"
    REPLAYED = "replayed"
    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    REFETCHED = "refetched"
    REMAPPED = "remapped"
    ERASED = "erased"


class DeliveryNote(msgspec.Struct, frozen=True, gc=False):
    """The facts about a delivery that its history keeps.

    Attributes:
        order_id: the ID that was enqueued.
        attempt: number of the attempt, from 1.
        enqueued_at: when the order was enqueued, in Unix seconds.
        origin: the program that enqueued it, if the entry names it.
        replayed_at: when its dead letter was last replayed, in Unix seconds.
        worker: the process that handled the delivery.
        took: seconds of the request to the external API. None if there was none.
    """

    order_id: str
    attempt: int
    enqueued_at: float
    origin: str | None
    replayed_at: float | None
    worker: str
    took: float | None


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """One event to record that belongs to no stored row.

    Attributes:
        note: about the delivery.
        event: its result.
        age: seconds since it happened.
        after: seconds from then until the next attempt, for a retry.
        reason: a `RetryReason` or `DeadReason`.
        error: for operators, without any value of the order.
    """

    note: DeliveryNote
    event: HistoryEvent
    age: float
    after: float | None = None
    reason: str | None = None
    error: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shown event of the history of an order. Values that do not belong to the event are None, and left out of JSON.

    Attributes:
        at: when it happened.
        by: the program that enqueued the order, or the operator.
        attempt: the number of the attempt.
        status: HTTP status of a failed request.
        took: seconds of the request to the external API. None for a pushed document.
        version: version of the stored order.
        next_at: time of the next attempt.
        reason: a `RetryReason` or `DeadReason`.
        worker: the process that handled the attempt.
        announced_as: the ID that was enqueued, if a transform has changed it.
    """

    at: _Time
    event: HistoryEvent
    by: str | None = None
    attempt: int | None = None
    status: int | None = None
    took: float | None = None
    version: _Time | None = None
    next_at: _Time | None = None
    reason: str | None = None
    error: str | None = None
    worker: str | None = None
    announced_as: str | None = None


@dataclass(frozen=True, slots=True)
class OrderHistory:
    """Events of one order, the newest first.

    Attributes:
        before: where the next, older page begins. None if there are no older events.
    """

    entries: tuple[HistoryEntry, ...] = ()
    before: datetime | None = None
