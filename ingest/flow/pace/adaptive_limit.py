"""Limits the requests in flight to the capacity of the external API, estimated from response times and overload responses.

Each HTTP request is an attempt and counts separately. About once a second, `capacity_search` evaluates a window of attempts.
Overload responses (503, 504) and timeouts lower the limit at most once in a window. A 429 concerns the quota and `pace` instead.

The estimate is in memory. After a restart, a process begins with a few requests.
"""

import time
from collections.abc import Callable

from ingest.flow.pace.attempt_window import AttemptWindow
from ingest.flow.pace.capacity_search import CapacitySearch, is_another

# Overload responses that are more than a single failure, and their share of a window. A window with mostly such responses ends early.
_OVERLOADS = 5
_OVERLOADS_SHARE = 0.1
_MOST_OVERLOADED = 0.5
# Seconds between probes. A probe costs 20 % of the throughput of one window.
_PROBE_EVERY = 15.0


class AdaptiveLimit:
    """The limit of one process.

    Attributes:
        value: attempts that may be in flight now.
        in_flight: attempts in flight.

    Args:
        most: the configured limit.
        clock: monotonic seconds, as in the attempts.
        shared: seconds of a clock that all processes share, so that they probe together.
    """

    def __init__(
        self, most: int, *, clock: Callable[[], float] = time.monotonic, shared: Callable[[], float] = time.time
    ) -> None:
        self._most = most
        self._clock = clock
        self._shared = shared
        self._probes_at = self._clock() + _until_probe(self._shared())
        self.in_flight = 0
        self._search = CapacitySearch(most)
        self.value = int(self._search.limit)
        self._window = self._new_window(is_new=True)

    def restart(self) -> None:
        """An outage has ended. Begin with a few requests, because the API's capacity may have changed."""
        self._search = CapacitySearch(self._most)
        self._apply(is_new=True)

    # -- called for each attempt ------------------------------------------------------------------------------

    def record_start(self) -> None:
        """An attempt begins."""
        self.in_flight += 1
        self._window.peak = max(self._window.peak, self.in_flight)

    def record_document(self, started_at: float, ended_at: float) -> None:
        """An attempt has returned a document."""
        is_complete = self._window.add(started_at, ended_at, self.in_flight)
        self.in_flight -= 1
        if is_complete:
            self._decide(ended_at)
        elif ended_at >= self._probes_at:
            self._probe()

    def record_overload(self, started_at: float) -> None:
        """The API was overloaded for an attempt, or did not respond in time."""
        window = self._window
        window.add_overload(started_at, self.in_flight)
        self.in_flight -= 1
        if window.overloads >= _OVERLOADS and window.overloads >= _MOST_OVERLOADED * window.ended:
            self._cut()

    def record_end(self) -> None:
        """An attempt has ended in a way that does not depend on the API's capacity."""
        self.in_flight -= 1

    # -- once in a window -------------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        window, before = self._window, self._search.limit
        if window.overloads >= _OVERLOADS_SHARE * window.ended > 0:
            self._cut()
            return
        self._search.decide(window.measure(now))
        self._apply(is_new=is_another(before, self._search.limit))

    def _cut(self) -> None:
        self._search.cut(self._window.loaded)
        self._apply(is_new=True)

    def _probe(self) -> None:
        self._probes_at = self._clock() + _until_probe(self._shared())
        before = self._search.limit
        self._search.probe()
        if self._search.limit != before:
            self._apply(is_new=True)

    def _apply(self, *, is_new: bool) -> None:
        self.value = int(self._search.limit)
        self._window = self._new_window(is_new=is_new)

    def _new_window(self, *, is_new: bool) -> AttemptWindow:
        return AttemptWindow(self._clock(), self.in_flight, self.value, is_new=is_new)


def _until_probe(shared_now: float) -> float:
    """Seconds until all processes probe."""
    return _PROBE_EVERY - shared_now % _PROBE_EVERY
