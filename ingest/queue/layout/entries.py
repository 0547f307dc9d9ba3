"""Converts the fields of stream entries into our types, and back. Invalid fields of foreign programs are ignored."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import msgspec

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.delivery import LATEST_MS, DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.entry_fields import (
    ATTEMPT,
    ATTEMPTS,
    DEAD_AT,
    DOCUMENT,
    ENQUEUED_AT,
    ERROR,
    EVENT_AT,
    FIRST_ENQUEUED_AT,
    GROUP,
    KNOWN,
    LAST_SEEN_AT,
    OF_DEAD_LETTERS,
    OF_RETRIES,
    ORDER_ID,
    PACKED,
    REASON,
    REPLAYED_AT,
    REPLAYS,
    RETRY_ERROR,
    RETRY_REASON,
    SEEN,
    SEEN_KEY,
    WORKER,
)
from ingest.domain.deliveries.error_shape import error_shape
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

_MOST_FIELDS = 500
# The error is for operators, and travels with the entry.
_LONGEST_ERROR = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_SHOWN_MS = 9_999_999_999_999  # the year 2286
_CONTENT = {DOCUMENT, EVENT_AT}
_KEY_DIGITS = 24
_READ = OF_DEAD_LETTERS | {ORDER_ID, REPLAYS, REPLAYED_AT}


def to_delivery(stream: str, entry_id: bytes, fields: Mapping[bytes, bytes], count: int) -> Delivery:
    """The delivery of an entry."""
    name = entry_id.decode()
    if PACKED in fields:
        fields = unpacked_fields(fields)
    milliseconds = whole_number(fields.get(ENQUEUED_AT), digits=13) or min(int(name.partition("-")[0]), LATEST_MS)
    attempt = whole_number(fields.get(ATTEMPT), digits=6) or 1
    order_id = valid_order_id(fields.get(ORDER_ID))
    return Delivery(EntryRef(stream, name), order_id, milliseconds / 1000, attempt, count, fields.get(DOCUMENT), fields)


def to_dead_letter(entry_id: bytes, fields: Mapping[bytes, bytes], id_suffix: str = "") -> DeadLetterEntry:
    """The dead letter in an entry. Its ID ends with a suffix."""
    if PACKED in fields:
        fields = unpacked_fields(fields)
    name = entry_id.decode()
    return DeadLetterEntry(
        entry_id=name + id_suffix,
        order_id=text(fields.get(ORDER_ID)),
        reason=text(fields.get(REASON)) or "",
        error=text(fields.get(ERROR)) or "",
        attempts=whole_number(fields.get(ATTEMPTS), digits=6),
        dead_at=moment(fields.get(DEAD_AT)) or time_of(int(name.partition("-")[0])),
        first_enqueued_at=moment(fields.get(FIRST_ENQUEUED_AT)),
        worker=text(fields.get(WORKER)),
        replays=whole_number(fields.get(REPLAYS), digits=6) or 0,
        replayed_at=moment(fields.get(REPLAYED_AT)),
        seen=whole_number(fields.get(SEEN), digits=9) or 1,
        last_seen_at=moment(fields.get(LAST_SEEN_AT)),
        fields={name: value for name, value in fields.items() if name not in _READ},
    )


def retry_fields(
    delivery: Delivery, attempt: int, reason: RetryReason | None = None, error: str = ""
) -> Mapping[bytes, bytes]:
    """The fields of an entry that waits for its next attempt.

    They include the time at which the order was enqueued, because the ID of the next entry would give a later one.
    """
    fields = {**_without_group(delivery), ENQUEUED_AT: _enqueued_ms(delivery), ATTEMPT: b"%d" % attempt}
    if reason is not None:
        fields |= {RETRY_REASON: reason.encode(), RETRY_ERROR: error[:_LONGEST_ERROR].encode(errors="replace")}
    return fields


def dead_letter_fields(delivery: Delivery, reason: DeadReason, error: str, worker: str) -> Mapping[bytes, bytes]:
    """The fields of a dead letter."""
    own = {name: value for name, value in _without_group(delivery).items() if name not in OF_RETRIES | OF_DEAD_LETTERS}
    return {
        **own,
        **_seen_key(delivery, reason, error),
        REASON: reason.encode(),
        ERROR: error.encode(errors="replace"),
        ATTEMPTS: b"%d" % delivery.attempt,
        FIRST_ENQUEUED_AT: _enqueued_ms(delivery),
        WORKER: worker.encode(),
    }


def _seen_key(delivery: Delivery, reason: DeadReason, error: str) -> Mapping[bytes, bytes]:
    """The key that all dead letters of an order with this reason, the same shape of error and the same content have.

    Without a document, a dead letter stands for the newest version of its order. Fields of foreign programs are content.
    """
    if delivery.order_id is None:
        return {}
    content = {name: value for name, value in delivery.fields.items() if name not in KNOWN or name in _CONTENT}
    known = delivery.order_id, reason, error_shape(error), sorted(content.items())
    return {SEEN_KEY: sha256(msgspec.msgpack.encode(known)).hexdigest()[:_KEY_DIGITS].encode()}


def with_seen(entry_id: bytes, fields: Mapping[bytes, bytes], noted: bytes | None) -> Mapping[bytes, bytes]:
    """The fields of a dead letter with its count, as `_seen.lua` notes it."""
    known, *counted = (noted or b"").split() or [b""]
    if known != entry_id or not counted:
        return fields
    return {**fields, SEEN: counted[0], LAST_SEEN_AT: counted[1]}


def _enqueued_ms(delivery: Delivery) -> bytes:
    return b"%d" % (delivery.enqueued_at * 1000)


def _without_group(delivery: Delivery) -> Mapping[bytes, bytes]:
    # The group is written again when the entry returns to a stream.
    return {name: value for name, value in delivery.fields.items() if name != GROUP}


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """The fields of an entry as a script returns them: name, value, name, value."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def flat(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """The fields of an entry as a script takes them. Most fields of a wide entry are packed into one."""
    if len(fields) > _MOST_FIELDS:
        rest = [part for name, value in fields.items() if name not in KNOWN for part in (name, value)]
        fields = {name: value for name, value in fields.items() if name in KNOWN} | {
            PACKED: msgspec.msgpack.encode(rest)
        }
    return [part for pair in fields.items() for part in pair]


def unpacked_fields(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """All fields of a packed entry. A field that `flat` has not packed stays as it is."""
    try:
        packed = pairs(unpacked(fields[PACKED]))
    except (msgspec.DecodeError, ValueError):
        return fields
    return packed | {name: value for name, value in fields.items() if name != PACKED}


def unpacked(packed: bytes) -> list[bytes]:
    """The parts of a MessagePack array of strings, as text or bytes. The text need not be UTF-8.

    Raises:
        msgspec.DecodeError: if it is something else.
    """
    return [_part(bytes(part)) for part in msgspec.msgpack.decode(packed, type=list[msgspec.Raw])]


def _part(part: bytes) -> bytes:
    # The length is in the first byte (a short text), or in the 1, 2 or 4 bytes after it.
    kind = part[0]
    if 0xA0 <= kind <= 0xBF:
        return part[1:]
    if kind not in _HEADER:
        raise msgspec.DecodeError("neither text nor bytes")
    return part[_HEADER[kind] :]


_HEADER = {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xC4: 2, 0xC5: 3, 0xC6: 5}


def valid_order_id(raw: bytes | None) -> str | None:
    """An order ID, or None if there is none or it is not valid."""
    try:
        return None if raw is None else parse_order_id(raw.decode())
    except (InvalidOrderId, UnicodeDecodeError):
        return None


def whole_number(raw: bytes | None, *, digits: int) -> int | None:
    """A whole number, or None if it is something else or has more digits.

    13 digits of ms are within the range of dates (the year 2286), and 6 digits of an attempt within the range of an integer.
    """
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= digits else None


def moment(raw: bytes | None) -> datetime | None:
    """A time that is written in ms since 1970."""
    milliseconds = whole_number(raw, digits=13)
    return None if milliseconds is None else time_of(milliseconds)


def time_of(milliseconds: int) -> datetime:
    """A time that Redis gives. An ID that was written by hand may be beyond all dates."""
    return _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _LATEST_SHOWN_MS)))


def text(raw: bytes | None) -> str | None:
    """A text for operators, or None if there is none."""
    return None if raw is None else raw.decode(errors="backslashreplace")
