"""Parses a duration as users write it: `90`, `90s`, `15m`, `1h` or `2d`."""

import re

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
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
