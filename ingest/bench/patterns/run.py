"""Runs one pattern, either undisturbed and measured, or with a process killed half-way and all orders reconciled."""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ingest.bench.patterns.contenders import PatternContender, contender
from ingest.bench.patterns.plan import Pattern
from ingest.bench.report import Row
from ingest.bench.stage import Stage
from ingest.bench.trial import wait_until_done
from ingest.lab.simulated_api import RunningApi
from ingest.lab.usage import PeakMemory

Show = Callable[[int], None]
"""Called repeatedly with the number of stored orders."""

_SAMPLE_EVERY = 0.25
_SAMPLE_EVERY_BEFORE_KILL = 0.01


class Runs:
    """Runs patterns on the same servers.

    Args:
        stage: servers and commands, with the service's tables.
        api: the simulated external API.
        order_ids: IDs of the orders for each run.
    """

    def __init__(self, stage: Stage, api: RunningApi, order_ids: Sequence[str]) -> None:
        self._stage = stage
        self._api = api
        self._ids = order_ids

    def measure(self, pattern: Pattern, show: Show) -> Row:
        """Run a pattern undisturbed.

        Time is from the start of the first process to the last row, or None without a row. Memory is the peak of all
        processes in bytes, and CPU covers all processes from start to end. Rejected requests got a status other than
        200.

        Raises:
            LabFailed: the pattern fails, or makes no progress.
        """
        with self._prepared(pattern) as running:
            cpu_before, started = _cpu_of_children(), time.time()
            running.start()
            with PeakMemory(running.pids) as memory:
                self._wait_until_finished(running, pattern, show)
            # The times of children are available after the process has been waited for.
            running.close()
            cpu, stats, last, stored = (
                _cpu_of_children() - cpu_before,
                self._api.stats(),
                self._last_row(),
                self._stored(),
            )
        seconds = last - started if last is not None else None
        return {
            "pattern": pattern.value,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "memory": memory.peak,
            "stored": stored,
            "requests": stats.requests,
            "rejected": stats.failures,
            "peak_concurrency": stats.peak_concurrency,
        }

    def kill(self, pattern: Pattern, show: Show) -> Row:
        """Run a pattern, and kill one of its processes when half of the orders are stored.

        Orders without a row at the end are waiting if the same program would take them from a queue, else lost. Pending
        entries were delivered and not acked. The time of the last row is measured from the kill, or None without a kill
        or without a later row.

        Raises:
            LabFailed: the pattern fails, or makes no progress.
        """
        with self._prepared(pattern) as running:
            running.start()
            half = (len(self._ids) + 1) // 2

            def until_half() -> str | None:
                is_time = self._stored() >= half or running.has_finished()
                return None if is_time else self._shown(show)

            wait_until_done(until_half, name=pattern, every=_SAMPLE_EVERY_BEFORE_KILL)
            before, killed_at = self._stored(), time.time()
            process = running.kill_one() if before < len(self._ids) and not running.has_finished() else None
            self._wait_until_finished(running, pattern, show)
            waiting, last = running.waiting(), self._last_row()
            missing = set(self._ids) - {order_id for (order_id,) in self._stage.sql("SELECT order_id FROM orders")}
            return {
                "pattern": pattern.value,
                "process": process,
                "stored_before": before,
                "stored": len(self._ids) - len(missing),
                "seconds_after": last - killed_at if process and last is not None and last > killed_at else None,
                "waiting": len(missing & waiting),
                "lost": len(missing - waiting),
                "pending": running.pending(),
                "requests": self._api.stats().requests,
            }

    @contextmanager
    def _prepared(self, pattern: Pattern) -> Iterator[PatternContender]:
        """The pattern on a cleared stage, which is ended at the end of the block."""
        self._stage.clear()
        running = contender(pattern, self._stage, self._api.url, self._ids)
        self._api.reset()
        try:
            yield running
        finally:
            running.close()

    def _wait_until_finished(self, running: PatternContender, pattern: Pattern, show: Show) -> None:
        def sample() -> str | None:
            return None if running.has_finished() else self._shown(show)

        wait_until_done(sample, name=pattern, every=_SAMPLE_EVERY)

    def _shown(self, show: Show) -> str:
        stored = self._stored()
        show(stored)
        return f"{stored:,} orders are stored"

    def _stored(self) -> int:
        return int(self._stage.sql("SELECT count(*) FROM orders")[0][0])

    def _last_row(self) -> float | None:
        """Unix time of the last row by the clock of PostgreSQL, which runs on this machine."""
        ((last,),) = self._stage.sql("SELECT extract(epoch FROM max(ingested_at))::float8 FROM orders")
        return None if last is None else float(last)


def _cpu_of_children() -> float:
    """CPU seconds of all children that this process has waited for, including their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
