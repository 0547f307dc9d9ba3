"""Workers as a Deployment has them: N of them, each with the limits of its container, and replaced where one ends."""

import asyncio
import random
from itertools import count

from rehearsals.scale.control_groups import ControlGroups, Limits
from rehearsals.scale.prometheus import Prometheus
from rehearsals.scale.rehearsal import Worker

from ingest.bench.stage import Stage
from ingest.lab.servers.server import free_port

_SECONDS_TO_STOP = 45.0  # terminationGracePeriodSeconds


class Fleet:
    """The workers and the exporter, all of which are targets of Prometheus."""

    def __init__(self, on: Stage, groups: ControlGroups, limits: Limits, prometheus: Prometheus) -> None:
        self._on = on
        self._groups = groups
        self._limits = limits
        self._prometheus = prometheus
        self._numbers = count(1)
        self._workers: list[Worker] = []
        self._stopping: list[asyncio.Future[int | None]] = []
        self._exporter = free_port()
        on.commands.start("exporter", "--metrics-port", str(self._exporter))
        self._tell()

    def running(self) -> int:
        """How many run."""
        return len(self._workers)

    def become(self, wanted: int) -> None:
        """Start missing workers, or stop excess ones."""
        if len(self._workers) == wanted:
            return
        while len(self._workers) < wanted:
            self._start()
        leaving, self._workers = self._workers[wanted:], self._workers[:wanted]
        self._tell()
        stopping = (asyncio.to_thread(worker.process.stop, _SECONDS_TO_STOP) for worker in leaving)
        self._stopping += map(asyncio.ensure_future, stopping)

    async def has_stopped(self) -> None:
        """Wait for stopped workers to end."""
        await asyncio.gather(*self._stopping)

    def kill_half(self, chance: random.Random) -> int:
        """Kill half of the workers with all their processes, replace them, and return their number."""
        killed = chance.sample(self._workers, (len(self._workers) + 1) // 2)
        for worker in killed:
            worker.process.kill()
            self._workers.remove(worker)
            self._start()
        self._tell()
        return len(killed)

    def _start(self) -> None:
        name = f"worker-{next(self._numbers)}"
        self._workers.append(Worker(self._on, name, self._groups.make(self._limits).containing))

    def _tell(self) -> None:
        ports = {worker.process.name: worker.port for worker in self._workers}
        self._prometheus.tell(ports | {"exporter": self._exporter})
