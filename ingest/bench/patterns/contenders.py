"""How each pattern is started, seen to end, and which of its processes is killed."""

from __future__ import annotations

import signal
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from ingest.bench.patterns import streams
from ingest.bench.patterns.plan import SERVICE_CONCURRENCY, SERVICE_PROCESSES, Pattern
from ingest.lab.servers.server import free_port
from ingest.queue.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.bench.program import Program
    from ingest.bench.stage import Stage
    from ingest.demo.run.commands import Command

_IDS_FILE = "ids.txt"
_SECONDS_TO_STOP = 45.0


class Contender(Protocol):
    """One pattern, ready to start on a cleared stage."""

    def start(self) -> None:
        """Start its processes."""

    @property
    def pids(self) -> Sequence[int]:
        """The roots of its process trees."""

    def has_finished(self, within: float) -> bool:
        """Wait up to `within` seconds for it to have nothing left to do."""

    def kill_one(self) -> str | None:
        """Kill one of its processes; say which, None if all have ended. A program that ends with it is not started again."""

    def waiting(self) -> set[str]:
        """The orders that the same program, if it ran on or was started again, would take from a queue."""

    def pending(self) -> int:
        """Entries of its queue that were handed out and not acked."""

    def close(self) -> None:
        """End what is left of it, and wait for that."""


def contender(pattern: Pattern, on: Stage, url: str, order_ids: Sequence[str]) -> Contender:
    """The pattern, with its orders where it expects them; the API is at `url`."""
    (on.home / _IDS_FILE).write_text("".join(f"{order_id}\n" for order_id in order_ids))
    match pattern:
        case Pattern.SERVICE:
            return Service(on, url)
        case Pattern.STREAMS:
            return Streams(on, url, order_ids)
        case Pattern.PROCESSES:
            return Pool(on, url, pattern)
        case _:
            return Single(on, url, pattern)


class _Programs:
    """Programs of this folder."""

    def __init__(self, on: Stage, url: str, name: str, count: int = 1) -> None:
        self._on = on
        self._url = url
        self._name = name
        self._count = count
        self._running: list[Program] = []
        self._is_disturbed = False

    def start(self) -> None:
        for _ in range(self._count):
            self._start_one()

    @property
    def pids(self) -> Sequence[int]:
        return [program.pid for program in self._running]

    def has_finished(self, within: float) -> bool:
        until = monotonic() + within
        if not all(program.has_ended(max(0.0, until - monotonic())) for program in self._running):
            return False
        for program in self._running:
            if program.exit_code != 0 and not self._is_disturbed:
                raise program.failed("did not succeed")
        return True

    def close(self) -> None:
        for program in self._running:
            program.kill()

    def _start_one(self) -> None:
        settings = {
            "INGEST_UPSTREAM_URL": self._url,
            "INGEST_POSTGRES_DSN": self._on.postgres_dsn,
            "INGEST_REDIS_URL": self._on.redis_url,
        }
        self._running.append(self._on.program(f"ingest.bench.patterns.{self._name}", _IDS_FILE, **settings))


class Single(_Programs):
    """A program of one process, without a queue outside of it."""

    def kill_one(self) -> str | None:
        """Kill the program."""
        self._is_disturbed = True
        self._running[0].signal(signal.SIGKILL)
        return "its only process"

    def waiting(self) -> set[str]:
        """None: started again, it would begin anew with a list that somebody else has kept."""
        return set()

    def pending(self) -> int:
        """None: it has no queue."""
        return 0


class Pool(Single):
    """A program with a pool of processes."""

    def kill_one(self) -> str | None:
        """Kill a process of the pool."""
        self._is_disturbed = True
        # The youngest: what multiprocessing may need for itself is older.
        return "1 process of the pool" if _kill(_descendants(self.pids[0])[-1:]) else None


class Streams(_Programs):
    """Several equal programs on one stream."""

    def __init__(self, on: Stage, url: str, order_ids: Sequence[str]) -> None:
        super().__init__(on, url, Pattern.STREAMS, streams.PROCESSES)
        on.redis.delete(streams.STREAM)
        on.redis.xgroup_create(streams.STREAM, streams.GROUP, id="0", mkstream=True)
        with on.redis.pipeline(transaction=False) as pipe:
            for order_id in order_ids:
                pipe.xadd(streams.STREAM, {"order_id": order_id})
            pipe.execute()

    def kill_one(self) -> str | None:
        """Kill a program that has something in hand, and start another in its place, as its supervisor would."""
        self._is_disturbed = True
        program = max(self._running, key=self._held_by)
        program.kill()
        self._start_one()
        return f"1 of {streams.PROCESSES} processes, started anew"

    def waiting(self) -> set[str]:
        """What was never handed out."""
        group = self._group()
        last = group["last-delivered-id"].decode()
        entries: Any = self._on.redis.xrange(streams.STREAM, min=f"({last}")
        return {fields[b"order_id"].decode() for _, fields in entries}

    def pending(self) -> int:
        """What was handed out to anyone, dead or alive, and not acked."""
        return int(self._group()["pending"])

    def close(self) -> None:
        """End the programs and remove the stream."""
        super().close()
        self._on.redis.delete(streams.STREAM)

    def _held_by(self, program: Program) -> int:
        consumers: Any = self._on.redis.xinfo_consumers(streams.STREAM, streams.GROUP)
        mark = f"-{program.pid}-"
        return sum(int(consumer["pending"]) for consumer in consumers if mark in consumer["name"].decode())

    def _group(self) -> dict[str, Any]:
        groups: Any = self._on.redis.xinfo_groups(streams.STREAM)
        return dict(groups[0])


class Service:
    """`ingest worker`, with a /metrics that nobody asks."""

    def __init__(self, on: Stage, url: str) -> None:
        self._on = on
        self._keys = Keys.of(on.stream)
        self._command: Command | None = None
        on.commands.configure({"INGEST_UPSTREAM_URL": url})
        on.commands.start("enqueue", "--quiet", "--file", _IDS_FILE).finish()

    def start(self) -> None:
        """Start the command."""
        options = (f"--processes={SERVICE_PROCESSES}", f"--concurrency={SERVICE_CONCURRENCY}")
        self._command = self._on.commands.start("worker", *options, f"--metrics-port={free_port()}")

    @property
    def pids(self) -> Sequence[int]:
        """The supervisor."""
        return [self._running.pid]

    def has_finished(self, within: float) -> bool:
        """Whether its queue is empty: it runs on, so asking is all there is."""
        if self._running.has_ended(within):
            raise self._running.failed("ended by itself")
        with self._on.redis.pipeline(transaction=True) as pipe:
            pipe.xlen(self._keys.stream)
            pipe.zcard(self._keys.retry)
            return not any(pipe.execute())

    def kill_one(self) -> str | None:
        """Kill a worker process."""
        # The eldest: the one that serves /metrics comes last.
        return f"1 of {SERVICE_PROCESSES} worker processes" if _kill(_descendants(self.pids[0])[:1]) else None

    def waiting(self) -> set[str]:
        """What is queued or pending; when it has finished, none is. A dead letter counts as lost."""
        entries: Any = self._on.redis.xrange(self._keys.stream)
        return {fields[b"order_id"].decode() for _, fields in entries}

    def pending(self) -> int:
        """What is handed out and not acked."""
        if not self._on.redis.exists(self._keys.stream):
            return 0
        groups: Any = self._on.redis.xinfo_groups(self._keys.stream)
        return sum(int(group["pending"]) for group in groups)

    def close(self) -> None:
        """Stop it as a user would."""
        if self._command is None or self._command.has_ended():
            return
        if self._command.stop(_SECONDS_TO_STOP) != 0:
            raise self._command.failed("did not stop when asked")

    @property
    def _running(self) -> Command:
        if self._command is None:
            raise AssertionError("it was started")
        return self._command


def _descendants(pid: int) -> list[psutil.Process]:
    """In the order in which they were started."""
    try:
        found = psutil.Process(pid).children(recursive=True)
        return sorted(found, key=lambda child: (child.create_time(), child.pid))
    except psutil.NoSuchProcess:
        return []


def _kill(processes: Sequence[psutil.Process]) -> bool:
    """Kill them; whether there was any."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(processes)
