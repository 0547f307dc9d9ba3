"""Whether the worker processes still turn their event loops, as /healthz tells it; no server is asked.

Each loop's turns are counted on the board anyway, by the histogram of its lag. A process whose count stands still is
frozen, or dies as often as it is started.
"""

import time
from collections.abc import Callable

from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import SharedMetrics


class Liveness:
    """Compares the board with what it was at earlier looks.

    Args:
        board: of the worker processes.
        limit: seconds without a turn after which a process counts as silent.
        clock: monotonic seconds.
    """

    def __init__(
        self, shared_metrics: SharedMetrics, limit: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared_metrics = shared_metrics
        self._limit = limit
        self._clock = clock
        now = clock()
        self._seen = [(self._turns(slot), now) for slot in range(shared_metrics.slots)]

    def silent(self) -> list[int]:
        """The slots of the processes that have not turned for too long."""
        now = self._clock()
        for slot, (turns, _) in enumerate(self._seen):
            current = self._turns(slot)
            if current != turns:
                self._seen[slot] = (current, now)
        return [slot for slot, (_, since) in enumerate(self._seen) if now - since > self._limit]

    def _turns(self, slot: int) -> float:
        # The last cell is the sum of the lags; the others count.
        return sum(self._shared_metrics.cells(LOOP_LAG.name, 0, slot)[:-1])
