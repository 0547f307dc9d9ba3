"""Logs when the processes of `ingest worker` are ready, and how many orders they have settled in each minute.

The supervisor does this for all processes, from their shared memory. If it dies, its processes stop, and another command starts its own report.
"""

import time
from collections.abc import Callable

from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import ORDERS, READY
from ingest.telemetry.shared_metrics import SharedMetrics

_log = get_logger("worker")

_EVERY = 60.0
_READY_CHECK = 0.2
# Logged even if they are zero. The other outcomes are rare.
_ALWAYS = ("stored", "retried", "dead")


class WorkerReport:
    """The part of the supervisor.

    Args:
        shared_metrics: of the processes.
        has_sources: whether the sources have names.
        clock: monotonic seconds.
    """

    def __init__(
        self, shared_metrics: SharedMetrics, *, has_sources: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared_metrics = shared_metrics
        self._has_sources = has_sources
        self._clock = clock
        self._is_ready = False
        self._counted_at = clock()
        self._counts: dict[str, dict[str, int]] = {}

    def check(self) -> float:
        """Log due reports, and return the seconds until the next check."""
        if not self._is_ready:
            if self._shared_metrics.total(READY)[0] < self._shared_metrics.slots:
                return _READY_CHECK
            self._is_ready = True
            self._counted_at, self._counts = self._clock(), self._read()
            sources = {"sources": self._shared_metrics.sources()} if self._has_sources else {}
            _log.info("ready", processes=self._shared_metrics.slots, **sources)
        waited = self._clock() - self._counted_at
        if waited >= _EVERY:
            self._log_summary(waited)
            waited = 0.0
        return _EVERY - waited

    def _log_summary(self, seconds: float) -> None:
        """Log a line for each source that has settled orders, or a line of zeros, which shows that the command is running."""
        before, self._counts = self._counts, self._read()
        self._counted_at = self._clock()
        is_idle = True
        for source, counts in self._counts.items():
            settled = {outcome: count - before.get(source, {}).get(outcome, 0) for outcome, count in counts.items()}
            if any(settled.values()):
                is_idle = False
                _log_line(seconds, settled, {"source": source} if source else {})
        if is_idle:
            _log_line(seconds, {}, {})

    def _read(self) -> dict[str, dict[str, int]]:
        total = self._shared_metrics.total
        return {
            source: {outcome: int(total(ORDERS, index, source)[0]) for index, outcome in enumerate(ORDERS.values)}
            for source in self._shared_metrics.sources()
        }


def _log_line(seconds: float, settled: dict[str, int], source: dict[str, str]) -> None:
    shown = dict.fromkeys(_ALWAYS, 0) | {outcome: count for outcome, count in settled.items() if count}
    _log.info("summary", **source, **shown, seconds=round(seconds))
