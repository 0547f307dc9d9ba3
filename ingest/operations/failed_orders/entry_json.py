"""Converts dead letters and retries for JSON."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_fields import FORMER_ORIGIN, ORIGIN
from ingest.domain.deliveries.selection import FailedEntry
from ingest.operations.visibility import EVERYTHING, Visibility


def as_object(entry: DeadLetterEntry, source: str, sees: Visibility = EVERYTHING) -> dict[str, Any]:
    """Convert a dead letter of a source for JSON. The entry's other fields are grouped in `fields`."""
    return {
        "id": entry.entry_id,
        "source": source,
        "order_id": entry.order_id,
        "reason": entry.reason,
        "error": entry.error,
        "attempts": entry.attempts,
        "dead_at": json_time(entry.dead_at),
        "first_enqueued_at": json_time(entry.first_enqueued_at),
        "worker": entry.worker,
        "seen": entry.seen,
        "last_seen_at": json_time(entry.last_seen_at),
        "replays": entry.replays,
        "replayed_at": json_time(entry.replayed_at),
        "fields": sees.fields(texts(_with_current_names(entry.fields))),
    }


def listed_as_object(entry: FailedEntry, source: str) -> dict[str, Any]:
    """Convert an entry of a list for JSON, without fields that lists do not read."""
    if isinstance(entry, DeadLetterEntry):
        shown = as_object(entry, source)
        del shown["fields"]
        return shown
    return {
        "id": entry.entry_id,
        "source": source,
        "order_id": entry.order_id,
        "next_try_at": json_time(entry.next_try_at),
        "attempt": entry.attempt,
        "reason": entry.reason,
        "error": entry.error,
        "announced_at": json_time(entry.announced_at),
    }


def _with_current_names(fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Name the fields of an entry of an earlier release as this release does."""
    if FORMER_ORIGIN not in fields or ORIGIN in fields:
        return fields
    return {ORIGIN if name == FORMER_ORIGIN else name: value for name, value in fields.items()}


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode an entry's fields. Bytes that are not UTF-8 become backslash escapes."""
    return {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in fields.items()
    }


def json_time(moment: datetime | None) -> str | None:
    """Convert a time for JSON: in UTC, with milliseconds."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
