"""One run of one pattern: undisturbed and measured, or with a process killed half-way and every order accounted for."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from ingest.bench.errors import BenchFailed
from ingest.bench.patterns.contenders import contender
from ingest.bench.usage import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from ingest.bench.patterns.contenders import Contender
    from ingest.bench.patterns.plan import Pattern
    from ingest.bench.stage import Api, Stage

    Watcher = Callable[[int], None]
    """Told now and then how many orders are stored."""

_LOOK_EVERY = 0.25
_LOOK_EVERY_BEFORE_KILL = 0.01


@dataclass(frozen=True, slots=True)
class Measured:
    """An undisturbed run.

    Attributes:
        seconds: from the start of its first process to its last row; None without a row.
        cpu_seconds: of all its processes, from start to end.
        memory: most bytes at a time, of all its processes.
        stored: orders that have a row in the end.
        requests: that the API got.
        refused: those that it answered otherwise than with 200.
        peak_concurrency: most requests that it had at a time.
    """

    pattern: Pattern
    seconds: float | None
    cpu_seconds: float
    memory: int
    stored: int
    requests: int
    refused: int
    peak_concurrency: int


@dataclass(frozen=True, slots=True)
class Killed:
    """A run of which a process was killed half-way.

    Attributes:
        process: what was killed; None if all was stored before it could be.
        stored_before: orders stored when it was killed.
        stored: orders that have a row in the end.
        seconds_after: from the kill to the last row; None if there was none, or no kill.
        waiting: of the rest, those that the same program would take from a queue.
        lost: of the rest, those that nothing would take.
        pending: entries of its queue that were handed out and never acked.
        requests: that the API got.
    """

    pattern: Pattern
    process: str | None
    stored_before: int
    stored: int
    seconds_after: float | None
    waiting: int
    lost: int
    pending: int
    requests: int


class Track:
    """Where the runs take place.

    Args:
        on: servers and commands, with the service's tables.
        api: the simulated external API.
        order_ids: what each run fetches.
    """

    def __init__(self, on: Stage, api: Api, order_ids: Sequence[str]) -> None:
        self._on = on
        self._api = api
        self._ids = order_ids

    def measure(self, pattern: Pattern, patience: float, watcher: Watcher) -> Measured:
        """Let a pattern do its work.

        Raises:
            BenchFailed: it does not end within `patience` seconds.
        """
        with self._prepared(pattern) as runner, _Rows(self._on.postgres_dsn) as rows:
            cpu_before, started = _cpu_of_children(), time.time()
            runner.start()
            with PeakMemory(runner.pids) as memory:
                _until_finished(runner, rows, patience, watcher)
            # Its children's times are known when it has been waited for.
            runner.close()
            stats, last = self._api.stats(), rows.last()
            return Measured(
                pattern=pattern,
                seconds=last - started if last is not None else None,
                cpu_seconds=_cpu_of_children() - cpu_before,
                memory=memory.peak,
                stored=len(rows.ids()),
                requests=stats.requests,
                refused=stats.refusals,
                peak_concurrency=stats.peak_concurrency,
            )

    def kill(self, pattern: Pattern, patience: float, watcher: Watcher) -> Killed:
        """Let a pattern do its work, and kill a process of it when half of the orders are stored.

        Raises:
            BenchFailed: as `measure`.
        """
        with self._prepared(pattern) as runner, _Rows(self._on.postgres_dsn) as rows:
            runner.start()
            half = (len(self._ids) + 1) // 2
            while (before := rows.count()) < half and not runner.has_finished(_LOOK_EVERY_BEFORE_KILL):
                watcher(before)
            killed_at = time.time()
            process = runner.kill_one() if before < len(self._ids) and not runner.has_finished(0.0) else None
            _until_finished(runner, rows, patience, watcher)
            waiting, pending, last = runner.waiting(), runner.pending(), rows.last()
            missing = set(self._ids) - rows.ids()
            return Killed(
                pattern=pattern,
                process=process,
                stored_before=before,
                stored=len(self._ids) - len(missing),
                seconds_after=last - killed_at if process and last is not None and last > killed_at else None,
                waiting=len(missing & waiting),
                lost=len(missing - waiting),
                pending=pending,
                requests=self._api.stats().requests,
            )

    @contextmanager
    def _prepared(self, pattern: Pattern) -> Iterator[Contender]:
        """The pattern on a cleared stage, ended when the block is left."""
        self._on.clear()
        runner = contender(pattern, self._on, self._api.url, self._ids)
        self._api.reset()
        try:
            yield runner
        finally:
            runner.close()


class _Rows:
    """The stored orders; a context manager, as it keeps a connection."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def count(self) -> int:
        return int(self._one("SELECT count(*) FROM orders"))

    def last(self) -> float | None:
        """Unix time of the last row, by PostgreSQL's clock, which is ours."""
        last = self._one("SELECT extract(epoch FROM max(ingested_at)) FROM orders")
        return None if last is None else float(last)

    def ids(self) -> set[str]:
        return {row[0] for row in self._connection.execute("SELECT order_id FROM orders")}

    def _one(self, query: LiteralString) -> Any:
        row = self._connection.execute(query).fetchone()
        return None if row is None else row[0]


def _until_finished(runner: Contender, rows: _Rows, patience: float, watcher: Watcher) -> None:
    deadline = time.monotonic() + patience
    while not runner.has_finished(_LOOK_EVERY):
        stored = rows.count()
        watcher(stored)
        if time.monotonic() > deadline:
            raise BenchFailed(f"not finished within {patience:.0f} s; {stored:,} orders are stored")


def _cpu_of_children() -> float:
    """CPU seconds of all processes that this one has started and waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
