"""Times as users type and read them: ISO 8601, or an age such as `2h`."""

import re
from datetime import UTC, datetime, timedelta

from ingest.domain.durations import format_duration

__all__ = ["InvalidTime", "format_age", "format_duration", "format_time", "parse_time"]

_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


class InvalidTime(ValueError):
    """A text that is not a time."""


def parse_time(text: str, now: datetime) -> datetime:
    """Parse a time. Without an offset it is in UTC, like every time that we show.

    Args:
        text: ISO 8601 (`2026-01-31`, `2026-01-31T08:00Z`), or an age (`90s`, `30m`, `2h`, `7d`, `1w`).
        now: the time from which an age counts back.

    Raises:
        InvalidTime: the message names the valid forms.
    """
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=float(age[1]) * _UNITS[age[2]])
        parsed = datetime.fromisoformat(text)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTime(
            f"{text!r} is not a time: use one such as 2026-01-31 or 2026-01-31T08:00Z, or an age such as 30m, 2h or 7d"
        ) from None


def format_time(moment: datetime) -> str:
    """A time as `--since` takes it, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_age(moment: datetime, now: datetime) -> str:
    """How long ago a time was."""
    return f"{format_duration(max(0.0, (now - moment).total_seconds()), '.0f')} ago"
