"""A delivery: a stream entry that is given to a worker, and what the queue and the store say of deliveries.

What is created for each order is a msgspec struct, at a tenth of what a frozen dataclass costs.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from ingest.domain.deliveries.entry_fields import PUSHED_AT, RETRY_REASON, SOURCE, TRACEPARENT
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.request_headers import is_traceparent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 253_370_764_799_999
# Until the year 2286.
_MICROSECOND_DIGITS = 16
"""The end of the year 9998: the latest moment that has a date wherever one is. Entry IDs of other programs may be beyond."""


class DeadReason(StrEnum):
    """Why an entry was dead-lettered."""

    INVALID_MESSAGE = "invalid_message"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    INVALID_ORDER = "invalid_order"
    UNSTORABLE = "unstorable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MAX_DELIVERIES = "max_deliveries"
    TRANSFORM_FAILED = "transform_failed"


class EntryRef(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """What identifies an entry: entry IDs repeat over the streams of a queue.

    Attributes:
        stream: the Redis key of the stream.
        id: the entry's ID in it, `milliseconds-sequence`.
    """

    stream: str
    id: str


class RetryReason(StrEnum):
    """Why an order is delivered again later; the label `reason` of `ingest_retries_total`."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    HTTP_STATUS = "http_status"
    TRUNCATED = "truncated"
    THROTTLED = "throttled"
    CREDENTIAL = "credential"
    CLIENT = "client"
    ROW_REFUSED = "row_refused"
    ROW_LOCKED = "row_locked"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivery of a stream entry to a consumer.

    Attributes:
        entry: which entry.
        order_id: the announced order; None if the entry names none that is valid.
        enqueued_at: Unix seconds at which the order was first announced.
        attempt: which attempt at this order this is, from 1. Unlike `count`, it grows only when a
            try at the order has failed, and it outlives the entry.
        count: how often Redis has delivered this entry, this time included.
        document: the order itself, if it was pushed with the entry; else it has to be fetched.
        fields: the entry as it stands in the stream, unknown fields included.
    """

    entry: EntryRef
    order_id: str | None
    enqueued_at: float
    attempt: int
    count: int
    document: bytes | None
    fields: Mapping[bytes, bytes]

    def request(self, order_id: str, together: int = 0) -> FetchRequest:
        """What is requested of the external API for this delivery."""
        fields = self.fields
        traceparent: str | None = None
        if (given := fields.get(TRACEPARENT)) is not None:
            # Another program may have written the entry; an invalid context would break the request.
            text = given.decode("ascii", "replace")
            traceparent = text if is_traceparent(text) else None
        return FetchRequest(order_id, self.attempt, traceparent, fields.get(SOURCE), together)

    def was_locked(self) -> bool:
        """Whether it comes again because another transaction had locked the row of its order."""
        return self.fields.get(RETRY_REASON) == RetryReason.ROW_LOCKED.encode()

    def pushed_at(self) -> datetime:
        """When a pushed document was accepted, which stands in for its version.

        Never when it is handled: a push that is redelivered after a later one is still the older. The script that has accepted it has
        noted the time. An entry that another program has written carries none; its time is that of the entry's ID, by Redis' clock,
        or the one that the entry carries, if that is earlier, as it is after a retry or a replay, which give it a new ID. A later
        one comes from a producer whose clock is ahead. Entries of one millisecond are told apart by their sequence, as microseconds.
        """
        noted = self.fields.get(PUSHED_AT, b"")
        if noted.isdigit() and len(noted) <= _MICROSECOND_DIGITS:
            return _EPOCH + timedelta(microseconds=int(noted))
        id_ms, _, sequence = self.entry.id.partition("-")
        added, carried = min(int(id_ms), LATEST_MS), round(self.enqueued_at * 1000)
        if carried < added:
            return _EPOCH + timedelta(milliseconds=carried)
        return _EPOCH + timedelta(milliseconds=added, microseconds=min(int(sequence), 999))


class Heartbeat(msgspec.Struct, frozen=True):
    """What the queue answers to a heartbeat.

    Attributes:
        now: the queue's clock, Unix seconds; it never goes back.
        is_first: whether there was none before, or a break since: others may have claimed what was held.
        leads: whether this consumer does the group's maintenance, while its heartbeat is valid.
        consumers: how many consumers of the group have heartbeats.
    """

    now: float
    is_first: bool
    leads: bool
    consumers: int


class Abandoned(msgspec.Struct, frozen=True):
    """Deliveries that others have left.

    Attributes:
        released: what was released.
        dead: what consumers held whose heartbeats have ended.
    """

    released: list[Delivery]
    dead: list[Delivery]


class Sweep(msgspec.Struct, frozen=True):
    """What one page of the sweep through the group's entries in flight has found.

    Attributes:
        is_complete: whether the sweep has reached its end; the next page begins a new one.
        released: entries that nobody had renewed in time.
        restored: entries that had left the pending list without an ack.
    """

    is_complete: bool
    released: int
    restored: int


class Effect(StrEnum):
    """What storing one order did to its row.

    Attributes:
        UNCHANGED: this version was stored already, or a newer one, or an older one with the same content.
        ERASED: the order does not come back.
        SUPPRESSED: none of these: a trigger of somebody else's has kept the row from being stored, without an error.
    """

    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    ERASED = "erased"
    SUPPRESSED = "suppressed"
