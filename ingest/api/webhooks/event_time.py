"""Reads a sender's own time of an event."""

import re
from datetime import UTC, datetime

# A time without a fraction cannot order the events of one second.
_WITH_FRACTION = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)\.(\d{1,12})\s?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_MILLISECONDS = re.compile(r"[0-9]{13}", re.ASCII)


def read_event_time(text: str) -> datetime | None:
    """Return the time in a text: ISO 8601 with a fraction of a second and a zone, or Unix milliseconds. None for any other text."""
    try:
        if _MILLISECONDS.fullmatch(text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        if found := _WITH_FRACTION.fullmatch(text):
            microseconds = found[2][:6].ljust(6, "0")
            return datetime.fromisoformat(f"{found[1]}.{microseconds}{found[3].upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # a month of 13, for example
    return None
