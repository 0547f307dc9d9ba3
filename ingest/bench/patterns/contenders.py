"""Starts each pattern, sees when it has finished, and kills one of its processes."""

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
    """One pattern, on a cleared stage with its orders where it expects them.

    Attributes:
        stream: of its queue; empty where it has none.
    """

    stream = ""

    @abstractmethod
    def has_finished(self) -> bool:
        """Whether it has nothing left to do."""

    @abstractmethod
    def kill_one(self) -> str | None:
        """Kill one of its processes; say which, None if all have ended. A program that ends with it is not started again."""

    def waiting(self) -> set[str]:
        """The orders that the same program, if it ran on or was started again, would take from its queue."""
        entries: Any = self._stage.redis.xrange(self.stream, min=self._first_waiting()) if self.stream else []
        return {fields[b"order_id"].decode() for _, fields in entries}

    def pending(self) -> int:
        """Entries of its queue that were delivered to any consumer, dead or alive, and not acked."""
        return sum(int(group["pending"]) for group in self._groups())

    def _first_waiting(self) -> str:
        """From which entry on those of its queue wait: from the first."""
        return "-"

    def _groups(self) -> list[dict[str, Any]]:
        redis: Any = self._stage.redis
        return list(redis.xinfo_groups(self.stream)) if self.stream and redis.exists(self.stream) else []


def contender(pattern: Pattern, stage: Stage, url: str, order_ids: Sequence[str]) -> PatternContender:
    """The pattern, with its orders where it expects them; the API is at `url`."""
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
    """A program of one process, without a queue outside of it: started again, it would begin with a list that others keep."""

    def __init__(self, stage: Stage, url: str, order_ids: Sequence[str], name: str, count: int = 1) -> None:
        super().__init__(stage, url)
        self._name = name
        self._ids_file = stage.write_ids(order_ids)
        self._count = count
        self._is_disturbed = False

    def start(self) -> None:
        """Start as many of its programs as belong to it."""
        for _ in range(self._count):
            self._start_one()

    def has_finished(self) -> bool:
        """Whether all its programs have ended, which they do by themselves."""
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
        # The youngest: what multiprocessing may need for itself is older.
        return "1 process of the pool" if kill(descendants(self.pids[0])[-1:]) else None


class Streams(Single):
    """Several equal programs on one stream."""

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
        """Kill the program with the most entries in flight, and start another, as its supervisor would."""
        self._is_disturbed = True
        max(self.parts, key=self._held_by).kill()
        self._start_one()
        return f"1 of {streams.PROCESSES} processes, replaced"

    def close(self) -> None:
        """End the programs and remove the stream."""
        super().close()
        self._redis.delete(streams.STREAM)

    def _first_waiting(self) -> str:
        """What was delivered is not asked for again."""
        (group,) = self._groups()
        return f"({group['last-delivered-id'].decode()}"

    def _held_by(self, program: LoggedProcess) -> int:
        consumers: Any = self._redis.xinfo_consumers(streams.STREAM, streams.GROUP)
        mark = f"-{program.pid}-"
        return sum(int(consumer["pending"]) for consumer in consumers if mark in consumer["name"].decode())


class Service(ServiceContender, PatternContender):
    """`ingest worker`, with a /metrics that is not scraped. When it has finished nothing waits: a dead letter counts as lost."""

    def __init__(self, stage: Stage, url: str, order_ids: Sequence[str]) -> None:
        sizes = {"INGEST_PROCESSES": SERVICE_PROCESSES, "INGEST_CONCURRENCY": SERVICE_CONCURRENCY}
        super().__init__(stage, url, {**sizes, "INGEST_METRICS_PORT": free_port()})
        self.stream = stage.keys().stream
        self._has_killed = False
        stage.enqueue(order_ids)

    def has_finished(self) -> bool:
        """Whether its queue is empty: its processes run on."""
        self.check()
        return not any(self._stage.queued())

    def kill_one(self) -> str | None:
        """Kill a worker process."""
        self._has_killed = self.kill_worker()
        return f"1 of {SERVICE_PROCESSES} worker processes" if self._has_killed else None

    def close(self) -> None:
        """Stop it as a user would. If the stop comes before the killed process is replaced, its death is an error of the command."""
        running = [part for part in self.parts if not part.has_ended()]
        if any(code != 0 for code in self.stop()) and running and not self._has_killed:
            raise running[0].failed("did not stop when asked")
