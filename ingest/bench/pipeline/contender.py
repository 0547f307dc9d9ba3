"""Who does the work: the service by its own command, or the bare loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, assert_never

import psutil
from redis.exceptions import ResponseError

from ingest.bench.errors import BenchFailed
from ingest.bench.pipeline.bare import GROUP as BARE_GROUP
from ingest.bench.pipeline.plan import BARE, SERVICE
from ingest.bench.usage import cpu_seconds

if TYPE_CHECKING:
    from ingest.bench.pipeline.plan import Plan
    from ingest.bench.program import Program
    from ingest.bench.stage import Stage
    from ingest.demo.run.commands import Command

_START_SECONDS = 60.0
_STOP_SECONDS = 45.0  # beyond the grace period of the workers
_SERVICE_GROUP = "ingest"


class Contender(ABC):
    """Running processes that empty the queue.

    Attributes:
        group: their consumer group.
        consumers: how many of them read once all are ready.
    """

    group: str
    consumers: int

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    @abstractmethod
    def parts(self) -> list[Command] | list[Program]:
        """What was started and still runs, or should."""

    def wait_until_ready(self) -> None:
        """Wait until every process reads.

        Raises:
            BenchFailed: they do not.
        """
        deadline = monotonic() + _START_SECONDS
        while self._reading() < self.consumers:
            self.check()
            if monotonic() > deadline:
                raise self.parts[0].failed("does not read from the queue")
            sleep(0.01)

    def check(self) -> None:
        """See that all of it still runs."""
        for part in self.parts:
            if part.has_ended():
                raise part.failed("ended by itself")

    def cpu(self) -> float:
        """CPU seconds so far, of processes that have ended, too."""
        return sum(cpu_seconds(part.pid) for part in self.parts)

    def stop(self) -> list[int | None]:
        """Ask all of it to stop, and return the exit codes."""
        return [part.stop(_STOP_SECONDS) for part in self.parts]

    def kill(self, plan: Plan) -> None:
        """Kill what the plan says."""
        raise BenchFailed(f"{type(self).__name__} {plan.kill}: nobody would finish its work")

    def _reading(self) -> int:
        try:
            groups: Any = self._stage.redis.xinfo_consumers(f"ingest:{{{self._stage.stream}}}:stream", self.group)
        except ResponseError:  # no stream or no group yet
            return 0
        return len(groups)


class Service(Contender):
    """`ingest worker`, once or twice."""

    def __init__(self, stage: Stage, plan: Plan, api_url: str) -> None:
        super().__init__(stage)
        self.group = _SERVICE_GROUP
        self.consumers = plan.processes
        stage.commands.configure({"INGEST_UPSTREAM_URL": api_url, **plan.worker_settings()})
        self._commands = [stage.commands.start("worker") for _ in range(plan.commands)]
        self._cpu_of_the_killed = 0.0

    @property
    def parts(self) -> list[Command]:
        """The commands."""
        return self._commands

    def cpu(self) -> float:
        """That of a killed command included."""
        return super().cpu() + self._cpu_of_the_killed

    def kill(self, plan: Plan) -> None:
        """Kill one worker process, or the first command with all of its processes."""
        first = self._commands[0]
        match plan.kill:
            case "worker":
                # All children of the supervisor are workers, as /metrics is off.
                psutil.Process(first.pid).children()[0].kill()
            case "command":
                self._cpu_of_the_killed = cpu_seconds(first.pid)
                first.kill()
                self._commands = self._commands[1:]
            case _:
                assert_never(plan.kill)


class Bare(Contender):
    """The bare loop, one process."""

    def __init__(self, stage: Stage, plan: Plan, api_url: str) -> None:
        super().__init__(stage)
        self.group = BARE_GROUP
        self.consumers = 1
        environment = {
            "INGEST_REDIS_URL": stage.redis_url,
            "INGEST_POSTGRES_DSN": stage.postgres_dsn,
            "INGEST_UPSTREAM_URL": api_url,
        }
        module = "ingest.bench.pipeline.bare"
        key = f"ingest:{{{stage.stream}}}:stream"
        self._program = stage.program(module, key, str(plan.in_flight), **environment)

    @property
    def parts(self) -> list[Program]:
        """The one process."""
        return [self._program]


def start(name: str, stage: Stage, plan: Plan, api_url: str) -> Contender:
    """Start a contender by its name."""
    kinds: dict[str, type[Service | Bare]] = {SERVICE: Service, BARE: Bare}
    return kinds[name](stage, plan, api_url)
