"""Limits the log lines that clients cause to one in a period for each subject."""

import time
from collections.abc import Hashable


class LogLimit:
    """The last time of each subject. Subjects are few, and never chosen by a client.

    Args:
        seconds: Between two lines.
        clock: Monotonic seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._logged: dict[Hashable, float] = {}

    def is_due(self, *subject: Hashable) -> bool:
        """Whether to log a line about this subject now."""
        now = time.monotonic()
        if now - self._logged.get(subject, float("-inf")) < self._seconds:
            return False
        self._logged[subject] = now
        return True
