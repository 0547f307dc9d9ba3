"""Whether the worker processes live and work, for /healthz and /readyz; no server is contacted.

The shared-memory metrics already count what a process does. A process whose event loop does not count is frozen, or dies each time it
is started. One whose loop runs, and that completes nothing for a long time, is stuck: no read of the queue ends, no request, no batch,
no order. That is no outage: an idle process reads the queue every second, one whose servers are unavailable tries again and again,
and one that the external API asks to wait does so for a minute at most.
"""

import time
from collections.abc import Callable, Sequence

from ingest.telemetry.metrics import ACTIVITY, LOOP_LAG, ORDERS, READY, STORE, UPSTREAM_REQUEST
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

_WORK = (ACTIVITY, ORDERS, STORE, UPSTREAM_REQUEST)


class Liveness:
    """Compares the shared-memory metrics with their values at earlier checks.

    Args:
        shared_metrics: of the worker processes.
        limit: seconds without an iteration after which a process counts as stalled.
        stuck_after: seconds without anything completed after which a process counts as stuck; 0: never.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        shared_metrics: SharedMetrics,
        limit: float,
        stuck_after: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared_metrics = shared_metrics
        self._loops = _Watched([LOOP_LAG], limit, shared_metrics, clock)
        self._has_readiness = READY in shared_metrics.specs
        self._work = _Watched(_WORK, stuck_after, shared_metrics, clock) if stuck_after else None

    def stalled(self) -> list[int]:
        """Return the slots of the processes whose event loop has made no progress for too long."""
        return self._loops.unchanged()

    def stuck(self) -> list[int]:
        """Return the slots of the processes that have completed nothing for too long."""
        return self._work.unchanged() if self._work is not None else []

    def starting(self) -> list[int]:
        """Return the slots of the processes that have not reached their servers since they started."""
        slots = range(self._shared_metrics.slots if self._has_readiness else 0)
        return [slot for slot in slots if not self._shared_metrics.cells(READY.name, 0, slot)[0]]


class _Watched:
    """What processes count, and since when it has not changed."""

    def __init__(
        self, specs: Sequence[Spec], limit: float, shared_metrics: SharedMetrics, clock: Callable[[], float]
    ) -> None:
        self._specs = specs
        self._limit = limit
        self._shared_metrics = shared_metrics
        self._clock = clock
        now = clock()
        self._seen = [(self._count(slot), now) for slot in range(shared_metrics.slots)]

    def unchanged(self) -> list[int]:
        """The slots whose count has not changed for longer than the limit."""
        now = self._clock()
        for slot, (before, _) in enumerate(self._seen):
            current = self._count(slot)
            if current != before:
                self._seen[slot] = (current, now)
        return [slot for slot, (_, since) in enumerate(self._seen) if now - since > self._limit]

    def _count(self, slot: int) -> float:
        return sum(self._of(spec, index, slot) for spec in self._specs for index in range(len(spec.values)))

    def _of(self, spec: Spec, index: int, slot: int) -> float:
        cells = self._shared_metrics.cells(spec.name, index, slot)
        # The last cell of a histogram is the sum of its values; the others count.
        return sum(cells[:-1]) if spec.kind == "histogram" else cells[0]
