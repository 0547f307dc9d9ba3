"""Deliveries of stream entries to workers, and the values that the queue and the store return for them.

Values created for each order are msgspec structs, which cost 10 % of a frozen dataclass.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from ingest.domain.deliveries.entry_fields import EVENT_AT, EXPECTED_VERSION, PUSHED_AT, RETRY_REASON, TRACEPARENT
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.request_headers import is_traceparent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 253_370_764_799_999
"""The end of the year 9998, the latest time with a date in every time zone. Entry IDs of other programs may be later."""
# Until the year 2286.
_MICROSECOND_DIGITS = 16


class DeadReason(StrEnum):
    """The reason why an entry was dead-lettered."""

    INVALID_MESSAGE = "invalid_message"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    INVALID_ORDER = "invalid_order"
    UNSTORABLE = "unstorable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MAX_DELIVERIES = "max_deliveries"
    TRANSFORM_FAILED = "transform_failed"


class EntryRef(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """Identifies an entry, because entry IDs repeat over the streams of a queue.

    Attributes:
        stream: the Redis key of the stream.
        id: the entry's ID in the stream, `milliseconds-sequence`.
    """

    stream: str
    id: str


class RetryReason(StrEnum):
    """The reason for a later delivery, the label `reason` of `ingest_retries_total`."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    HTTP_STATUS = "http_status"
    TRUNCATED = "truncated"
    THROTTLED = "throttled"
    CREDENTIAL = "credential"
    CLIENT = "client"
    NOT_FOUND = "not_found"
    OUTDATED = "outdated"
    ROW_REFUSED = "row_refused"
    ROW_LOCKED = "row_locked"


_ROW_LOCKED = RetryReason.ROW_LOCKED.encode()


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivery of a stream entry to a consumer.

    Attributes:
        order_id: the order, or None if the entry does not contain a valid ID.
        enqueued_at: Unix seconds at which the order was first enqueued.
        attempt: the number of this attempt at the order, from 1. Unlike `count`, it grows only when an
            attempt fails, and later entries of the order continue it.
        count: how often Redis has delivered this entry, including this delivery.
        document: the order itself if it was pushed with the entry. Otherwise it has to be fetched.
        fields: the entry as stored in the stream, including unknown fields.
    """

    entry: EntryRef
    order_id: str | None
    enqueued_at: float
    attempt: int
    count: int
    document: bytes | None
    fields: Mapping[bytes, bytes]

    def request(self, order_id: str, together: int = 0) -> FetchRequest:
        """Return the request to the external API for this delivery."""
        return FetchRequest(order_id, self.attempt, self.traceparent(), together)

    def traceparent(self) -> str | None:
        """Return the trace context of the entry, if it contains a valid one."""
        given = self.fields.get(TRACEPARENT)
        if given is None:
            return None
        # Another program may have written the entry, and an invalid context would break a request.
        text = given.decode("ascii", "replace")
        return text if is_traceparent(text) else None

    def added_at(self) -> float:
        """Return the Unix seconds at which the entry was added to its stream, by Redis' clock, from its ID."""
        return min(int(self.entry.id.partition("-")[0]), LATEST_MS) / 1000

    def was_locked(self) -> bool:
        """Return whether this is a retry because another transaction had locked the row of the order."""
        return self.fields.get(RETRY_REASON) == _ROW_LOCKED

    def pushed_at(self) -> datetime:
        """Return the time at which a pushed document was accepted, which replaces a missing version.

        The time of handling would be wrong, because a push may be redelivered after a later push. The script that accepts a push
        records the time. For an entry without it, written by another program, the time is the earlier of two. One is the entry's ID,
        by Redis' clock, which a retry or a replay replaces. The other is the time in the entry, which is later only if the producer's
        clock is ahead. The sequence number distinguishes entries of one millisecond, as microseconds.
        """
        if (noted := self._moment(PUSHED_AT)) is not None:
            return noted
        id_ms, _, sequence = self.entry.id.partition("-")
        added, carried = min(int(id_ms), LATEST_MS), round(self.enqueued_at * 1000)
        if carried < added:
            return _EPOCH + timedelta(milliseconds=carried)
        return _EPOCH + timedelta(milliseconds=added, microseconds=min(int(sequence), 999))

    def event_at(self) -> datetime | None:
        """Return the time of the event that a pushed document reports, by the clock of its sender, but at most `pushed_at`.

        It orders documents with the same version, which may arrive in any order. None if the sender has not reported it.
        """
        noted = self._moment(EVENT_AT)
        return None if noted is None else min(self.pushed_at(), noted)

    def expected_version(self) -> datetime | None:
        """Return the version that a webhook or a list has shown, 1970 if it only shows that the order exists, or None without evidence."""
        return self._moment(EXPECTED_VERSION)

    def _moment(self, name: bytes) -> datetime | None:
        noted = self.fields.get(name)
        if noted is None or not noted.isdigit() or len(noted) > _MICROSECOND_DIGITS:
            return None
        return _EPOCH + timedelta(microseconds=int(noted))


class Heartbeat(msgspec.Struct, frozen=True):
    """The queue's response to a heartbeat.

    Attributes:
        now: the queue's clock, Unix seconds, which never goes back.
        is_first: whether this is the first heartbeat or follows a break, so that others may have claimed the entries.
        leads: whether this consumer does the group's maintenance while its heartbeat is valid.
        consumers: the number of consumers in the group with a heartbeat.
        generation: of the partitions, at the last change that has opened or closed the queue.
    """

    now: float
    is_first: bool
    leads: bool
    consumers: int
    generation: int = 0


class Abandoned(msgspec.Struct, frozen=True):
    """Deliveries left by other consumers.

    Attributes:
        released: entries that were released.
        dead: entries held by consumers whose heartbeats have expired.
    """

    released: list[Delivery]
    dead: list[Delivery]


class Sweep(msgspec.Struct, frozen=True):
    """The result of one page of the sweep through the group's entries in flight.

    Attributes:
        is_complete: whether the sweep has reached its end, so that the next page begins a new sweep.
        released: entries whose lease had lapsed.
        restored: entries that had left the pending list without an ack.
    """

    is_complete: bool
    released: int
    restored: int


class Effect(StrEnum):
    """The effect of storing one order on its row.

    Attributes:
        UNCHANGED: this version or a newer one was already stored, or an older one with the same content.
        ERASED: the order was erased and is not stored again.
        SUPPRESSED: a trigger of another program suppressed the row without an error.
    """

    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    ERASED = "erased"
    SUPPRESSED = "suppressed"
