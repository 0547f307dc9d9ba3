"""How many requests may be in flight, and when the next one may begin: the concurrency limit, the pauses and the quota.

It is made first, and whatever sends requests gets it. If the process dies, its successor learns the limit and the pauses again.
"""

import time
from asyncio import Event
from collections.abc import Callable
from typing import Protocol

from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.pauses import Pauses
from ingest.telemetry.shared_metrics import Gauge


class Quota(Protocol):
    """The quota that the fleet shares: `ingest.upstream.quota.quota`."""

    def read_ahead(self) -> int:
        """How many requests this process may soon send."""

    def turn_away(self) -> None:
        """Send none of the requests that wait: the API asks to wait."""


class Pace:
    """The pace of one process.

    Attributes:
        pauses: the pauses that the API asks for.
        changed: set when more requests may be in flight.
        per_request: orders in one request, at most.

    Args:
        most: requests in flight, as set.
        gauge: shows the limit.
        pauses: see there.
        quota: shared with other processes, if one is set.
        adaptive: the limit by the API's own capacity, if it is in use.
        per_request: see there.
        clock: monotonic seconds, those of `record_throttle`.
    """

    def __init__(
        self,
        most: int,
        gauge: Gauge,
        pauses: Pauses,
        quota: Quota | None = None,
        adaptive: AdaptiveLimit | None = None,
        *,
        per_request: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pauses = pauses
        self.changed = Event()
        self.per_request = per_request
        self._quota = quota
        self._limit = ConcurrencyLimit(most, gauge, pauses, self.changed, adaptive, clock=clock)

    # -- orders ---------------------------------------------------------------------------------------------

    def orders(self) -> int:
        """How many orders may be in flight."""
        requests = self._limit.value
        return self.per_request * (requests if self._quota is None else min(requests, self._quota.read_ahead()))

    def delay(self) -> float:
        """Seconds until the next order may begin, 0 or less for now.

        Orders that share requests wait only for the pauses between all requests.
        """
        return self.pauses.delay() if self.per_request == 1 else self.pauses.left()

    def record_order(self) -> None:
        """An order begins."""
        if self.per_request == 1:
            self.pauses.record_start()

    # -- requests for several orders ------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """How many requests may be in flight."""
        return self._limit.value

    def request_delay(self) -> float:
        """Seconds until the next request for several orders may begin, 0 or less for now."""
        return self.pauses.delay()

    def record_request(self) -> None:
        """A request for several orders begins."""
        self.pauses.record_start()

    # -- responses ------------------------------------------------------------------------------------------

    def is_paused(self) -> bool:
        """Whether the API has asked to wait."""
        return self.pauses.left() > 0

    def record_success(self) -> None:
        """The API has responded without asking to wait."""
        self._limit.record_success()

    def record_throttle(self, retry_after: float | None, started_at: float) -> float:
        """The API has rejected a request that began at `started_at`, and asks to wait. Return how long its order should wait."""
        wait = self._limit.record_throttle(retry_after, started_at)
        if self._quota is not None:
            self._quota.turn_away()
        return wait

    def restart(self) -> None:
        """An outage has ended. Begin with a few requests."""
        self._limit.restart()
