"""Whether the event loops of the worker processes are running, for /healthz; no server is contacted.

The histogram of the event-loop lag in the shared-memory metrics already counts the iterations of each loop. A process
whose count does not change is frozen, or dies each time it is started.
"""

import time
from collections.abc import Callable

from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import SharedMetrics


class Liveness:
    """Compares the shared-memory metrics with their values at earlier checks.

    Args:
        shared_metrics: of the worker processes.
        limit: seconds without an iteration after which a process counts as stalled.
        clock: monotonic seconds.
    """

    def __init__(
        self, shared_metrics: SharedMetrics, limit: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared_metrics = shared_metrics
        self._limit = limit
        self._clock = clock
        now = clock()
        self._seen = [(self._iterations(slot), now) for slot in range(shared_metrics.slots)]

    def stalled(self) -> list[int]:
        """Return the slots of the processes whose event loop has made no progress for too long."""
        now = self._clock()
        for slot, (iterations, _) in enumerate(self._seen):
            current = self._iterations(slot)
            if current != iterations:
                self._seen[slot] = (current, now)
        return [slot for slot, (_, since) in enumerate(self._seen) if now - since > self._limit]

    def _iterations(self, slot: int) -> float:
        # The last cell is the sum of the lags; the others count.
        return sum(self._shared_metrics.cells(LOOP_LAG.name, 0, slot)[:-1])
