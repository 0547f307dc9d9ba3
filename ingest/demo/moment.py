"""The state of the running demo as shown in the live view."""

import time
from collections import deque
from dataclasses import dataclass

from ingest.lab.endpoints import Metrics
from ingest.lab.upstream.stats import StatsReport
from ingest.lab.usage import PeakMemory

_RATE_OVER = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """One sample of the workers and the API.

    Attributes:
        stored: stored orders by the workers' count.
        elapsed: seconds since the external API received its first request.
        rate: orders per second over the last second.
        memory: memory use of the workers in bytes.
    """

    metrics: Metrics
    api: StatsReport
    stored: int
    elapsed: float
    rate: float
    memory: int

    @property
    def mean_rate(self) -> float:
        """Orders per second since the first request."""
        return self.stored / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the workers' last sample of the queue was empty. Only Redis has the current state."""
        waiting = ("ingest_queue_depth", "ingest_queue_pending", "ingest_retries_scheduled")
        return not any(map(self.metrics.total, waiting))


class Moments:
    """Turns samples into moments and keeps the last second of them for the rate."""

    def __init__(self, memory: PeakMemory) -> None:
        self._memory = memory
        self._stored: deque[tuple[float, int]] = deque()

    def next(self, metrics: Metrics, api: StatsReport) -> Moment:
        """The moment of these two samples."""
        now = time.monotonic()
        stored = int(metrics.total("ingest_orders_total", 'outcome="stored"'))
        self._stored.append((now, stored))
        while len(self._stored) > 2 and now - self._stored[1][0] >= _RATE_OVER:
            self._stored.popleft()
        since, before = self._stored[0]
        rate = (stored - before) / (now - since) if now > since else 0.0
        elapsed = 0.0 if api.first_request is None else time.time() - api.first_request.unix
        return Moment(metrics, api, stored, elapsed, rate, self._memory.now)
