"""Starts each pattern, detects its end, and kills one of its processes."""

import signal
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from ingest.bench.contender import Contender, ServiceContender, kill
from ingest.bench.patterns import streams
from ingest.bench.patterns.plan import SERVICE_CONCURRENCY, SERVICE_PROCESSES, Pattern
from ingest.bench.stage import Stage
from ingest.lab.commands import LoggedProcess
from ingest.lab.servers.server import free_port
from ingest.lab.usage import descendants


class PatternContender(Contender):
    """One pattern on a cleared stage, with its orders in place.

    Attributes:
        stream: the stream of its queue, or empty without a queue.
    """

    stream = ""

    @abstractmethod
    def has_finished(self) -> bool:
        """Whether the pattern has finished."""

    @abstractmethod
    def kill_one(self) -> str | None:
        """Kill one process without restarting a program, and return its description, or None if all have ended."""

    def waiting(self) -> set[str]:
        """The orders that the same program, if it kept running or was restarted, would take from its queue."""
        entries: Any = self._stage.redis.xrange(self.stream, min=self._first_waiting()) if self.stream else []
        return {fields[b"order_id"].decode() for _, fields in entries}

    def pending(self) -> int:
        """The number of delivered entries that are not acked, including entries of dead consumers."""
        return sum(int(group["pending"]) for group in self._groups())

    def _first_waiting(self) -> str:
        """The entry ID from which on entries wait, which is the first."""
        return "-"

    def _groups(self) -> list[dict[str, Any]]:
        redis: Any = self._stage.redis
        return list(redis.xinfo_groups(self.stream)) if self.stream and redis.exists(self.stream) else []


def contender(pattern: Pattern, stage: Stage, url: str, order_ids: Sequence[str]) -> PatternContender:
    """The pattern with its orders in place, for the API at `url`."""
    match pattern:
        case Pattern.SERVICE:
            return Service(stage, url, order_ids)
        case Pattern.STREAMS:
            return Streams(stage, url, order_ids)
        case Pattern.PROCESSES:
            return Pool(stage, url, order_ids, pattern)
        case _:
            return Single(stage, url, order_ids, pattern)


class Single(PatternContender):
    """A program with one process and without an external queue, which a restart would begin with the whole list."""

    def __init__(self, stage: Stage, url: str, order_ids: Sequence[str], name: str, count: int = 1) -> None:
        super().__init__(stage, url)
        self._name = name
        self._ids_file = stage.write_ids(order_ids)
        self._count = count
        self._is_disturbed = False

    def start(self) -> None:
        """Start its programs."""
        for _ in range(self._count):
            self._start_one()

    def has_finished(self) -> bool:
        """Whether all programs have ended."""
        if not all(program.has_ended() for program in self.parts):
            return False
        for program in self.parts:
            if program.exit_code != 0 and not self._is_disturbed:
                raise program.failed("did not succeed")
        return True

    def kill_one(self) -> str | None:
        """Kill the program."""
        self._is_disturbed = True
        self.parts[0].signal(signal.SIGKILL)
        return "its only process"

    def _start_one(self) -> None:
        self._start_program(f"ingest.bench.patterns.{self._name}", self._ids_file)


class Pool(Single):
    """A program with a pool of processes."""

    def kill_one(self) -> str | None:
        """Kill a process of the pool."""
        self._is_disturbed = True
        # The youngest, because multiprocessing's own processes are older.
        return "1 process of the pool" if kill(descendants(self.pids[0])[-1:]) else None


class Streams(Single):
    """Several identical programs on one stream."""

    stream = streams.STREAM

    def __init__(self, stage: Stage, url: str, order_ids: Sequence[str]) -> None:
        super().__init__(stage, url, order_ids, Pattern.STREAMS, streams.PROCESSES)
        self._redis = stage.redis
        self._redis.delete(streams.STREAM)
        self._redis.xgroup_create(streams.STREAM, streams.GROUP, id="0", mkstream=True)
        with self._redis.pipeline(transaction=False) as pipe:
            for order_id in order_ids:
                pipe.xadd(streams.STREAM, {"order_id": order_id})
            pipe.execute()

    def kill_one(self) -> str | None:
        """Kill the program with the most entries in flight, and start a new one like a supervisor."""
        self._is_disturbed = True
        max(self.parts, key=self._held_by).kill()
        self._start_one()
        return f"1 of {streams.PROCESSES} processes, replaced"

    def close(self) -> None:
        """End the programs and remove the stream."""
        super().close()
        self._redis.delete(streams.STREAM)

    def _first_waiting(self) -> str:
        """The last delivered entry ID, because delivered entries are never read again."""
        (group,) = self._groups()
        return f"({group['last-delivered-id'].decode()}"

    def _held_by(self, program: LoggedProcess) -> int:
        consumers: Any = self._redis.xinfo_consumers(streams.STREAM, streams.GROUP)
        mark = f"-{program.pid}-"
        return sum(int(consumer["pending"]) for consumer in consumers if mark in consumer["name"].decode())


class Service(ServiceContender, PatternContender):
    """`ingest worker` with an unused /metrics. At the end, no order waits, and a dead letter counts as lost."""

    def __init__(self, stage: Stage, url: str, order_ids: Sequence[str]) -> None:
        sizes = {"INGEST_PROCESSES": SERVICE_PROCESSES, "INGEST_CONCURRENCY": SERVICE_CONCURRENCY}
        super().__init__(stage, url, {**sizes, "INGEST_METRICS_PORT": free_port()})
        self.stream = stage.keys().stream
        self._has_killed = False
        stage.enqueue(order_ids)

    def has_finished(self) -> bool:
        """Whether the queue is empty, because the processes keep running."""
        self.check()
        return not any(self._stage.queued())

    def kill_one(self) -> str | None:
        """Kill a worker process."""
        self._has_killed = self.kill_worker()
        return f"1 of {SERVICE_PROCESSES} worker processes" if self._has_killed else None

    def close(self) -> None:
        """Stop the service like a user. The exit code may be 1 if the killed process has not been replaced before."""
        running = [part for part in self.parts if not part.has_ended()]
        if any(code != 0 for code in self.stop()) and running and not self._has_killed:
            raise running[0].failed("did not stop after SIGTERM")
