"""Logs requests that were not admitted: one line a minute for each key, route and reason, however many there are."""

import time
from collections.abc import Callable

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Route
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
_EVERY = 60.0


class Rejections:
    """The last time at which each rejection was logged. Names come from the file of keys and from our routes, so there are few.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, str, str], float] = {}

    def log(self, route: Route, problem: Problem) -> None:
        """Log a rejection, unless its like has been logged within a minute."""
        named = (problem.key, f"{route.method} {route.path}", problem.code)
        now = self._clock()
        last = self._logged.get(named)
        if last is not None and now - last < _EVERY:
            return
        self._logged[named] = now
        _log.warning("request_rejected", key=named[0], route=named[1], reason=named[2])
