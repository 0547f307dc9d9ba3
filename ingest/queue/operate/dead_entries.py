"""Converts the fields of a dead-letter entry into a `DeadLetterEntry`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_fields import (
    ATTEMPTS,
    DEAD_AT,
    ERROR,
    FIRST_ENQUEUED_AT,
    OF_DEAD_LETTERS,
    ORDER_ID,
    PACKED,
    REASON,
    REPLAYED_AT,
    REPLAYS,
    WORKER,
)
from ingest.queue.layout.entries import unpacked_fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# 13 digits of ms: the year 2286. An ID that was written by hand may be beyond all dates.
_LATEST = 9_999_999_999_999
_READ = OF_DEAD_LETTERS | {ORDER_ID, REPLAYS, REPLAYED_AT}


def to_dead_letter(entry_id: bytes, fields: Mapping[bytes, bytes]) -> DeadLetterEntry:
    """The dead letter in an entry. Invalid fields of another program are ignored."""
    if PACKED in fields:
        fields = unpacked_fields(fields)
    name = entry_id.decode()
    milliseconds = min(int(name.partition("-")[0]), _LATEST)
    return DeadLetterEntry(
        entry_id=name,
        order_id=_text(fields.get(ORDER_ID)),
        reason=_text(fields.get(REASON)) or "",
        error=_text(fields.get(ERROR)) or "",
        attempts=_number(fields.get(ATTEMPTS), digits=6),
        dead_at=_moment(fields.get(DEAD_AT)) or _EPOCH + timedelta(milliseconds=milliseconds),
        first_enqueued_at=_moment(fields.get(FIRST_ENQUEUED_AT)),
        worker=_text(fields.get(WORKER)),
        replays=_number(fields.get(REPLAYS), digits=6) or 0,
        replayed_at=_moment(fields.get(REPLAYED_AT)),
        fields={name: value for name, value in fields.items() if name not in _READ},
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="backslashreplace")


def _number(raw: bytes | None, digits: int) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= digits else None


def _moment(raw: bytes | None) -> datetime | None:
    milliseconds = _number(raw, digits=13)
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
