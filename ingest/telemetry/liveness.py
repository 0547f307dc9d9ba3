"""Detects stalled and stuck worker processes for /healthz and /readyz, without contacting a server.

It reads the shared-memory metrics. If the event loop of a process does not count, the process is frozen or dies at each start. If the
loop runs but no read, request, batch or order completes for a long time, the process is stuck. An outage does not look like this:
an idle process reads the queue every second, a process without its servers keeps retrying, and throttling lasts a minute at most.
"""

import time
from collections.abc import Callable, Sequence

from ingest.domain.source_name import UNNAMED
from ingest.telemetry.metrics import ACTIVITY, LOOP_LAG, ORDERS, READY, STORE, UPSTREAM_REQUEST
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

_WORK = (ACTIVITY, ORDERS, STORE, UPSTREAM_REQUEST)


class ProcessLiveness:
    """Compares the shared-memory metrics with their values at earlier checks.

    Args:
        limit: seconds without an iteration after which a process counts as stalled.
        stuck_after: seconds without completed work after which a process counts as stuck, or 0 for never.
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
        """Return the slots of the processes that have not completed any work for too long."""
        return self._work.unchanged() if self._work is not None else []

    def starting(self) -> list[int]:
        """Return the slots of the processes that have not reached their servers since they started."""
        slots = range(self._shared_metrics.slots if self._has_readiness else 0)
        return [slot for slot in slots if not self._shared_metrics.cells(READY, 0, slot)[0]]


class _Watched:
    """The counts of each process, and the time since they last changed."""

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
        """Return the slots whose count has not changed for longer than the limit."""
        now = self._clock()
        for slot, (before, _) in enumerate(self._seen):
            current = self._count(slot)
            if current != before:
                self._seen[slot] = (current, now)
        return [slot for slot, (_, since) in enumerate(self._seen) if now - since > self._limit]

    def _count(self, slot: int) -> float:
        # The last cell of a histogram is the sum of its values.
        return sum(
            sum(self._shared_metrics.cells(spec, index, slot, source)[: -1 if spec.kind == "histogram" else None])
            for spec in self._specs
            for source in (self._shared_metrics.sources() if spec.by_source else [UNNAMED])
            for index in range(len(spec.values))
        )
