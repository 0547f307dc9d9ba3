"""Parses a duration as users write it (`90`, `90s`, `15m`, `1h` or `2d`), and formats one as they read it."""

import re

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SHOWN = (("d", 86_400), ("h", 3_600), ("min", 60))
NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,3})?"
_DURATION = re.compile(rf"({NUMBER})([smhd]?)")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: it is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("write seconds, or a number with s, m, h or d, such as 5m")
    return float(found[1]) * UNITS[found[2]]


def format_duration(seconds: float, precision: str = ".1f") -> str:
    """A duration in its largest unit, rounded. `precision` is the format of seconds."""
    for unit, length in _SHOWN:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:{precision}} s"
