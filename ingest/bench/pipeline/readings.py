"""Samples the CPU time of all parts, Redis' round trips and the remaining queue during a run."""

import time
from dataclasses import astuple, dataclass
from typing import Any

import psutil
from redis.exceptions import ResponseError

from ingest.bench.contender import Contender
from ingest.bench.stage import Stage
from ingest.lab.simulated_api import RunningApi
from ingest.lab.usage import cpu_seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """A sample of monotonic counters, mostly CPU seconds.

    Attributes:
        postgres: CPU of PostgreSQL, or None if it runs on another machine.
        api: CPU of the external API.
        bench: CPU of this process.
        machine: CPU of all processes on the machine.
        reads: Redis' reads from sockets of other clients, which are one or more for each round trip.
    """

    contender: float
    redis: float
    postgres: float | None
    api: float
    bench: float
    machine: float
    reads: int

    def __sub__(self, earlier: "Reading") -> "Reading":
        """The usage since then."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return Reading(*(None if now is None or then is None else now - then for now, then in pairs))  # type: ignore[arg-type]

    @property
    def known(self) -> float:
        """The known CPU seconds of all parts of the bench."""
        return self.contender + self.redis + (self.postgres or 0.0) + self.api + self.bench


class Readings:
    """Reads Redis over one connection, and counts its own round trips to subtract them."""

    def __init__(self, stage: Stage, contender: Contender, api: RunningApi) -> None:
        self._api = api
        self._stage = stage
        self._contender = contender
        self._keys = stage.keys()
        self._asked = 0

    def read(self) -> Reading:
        """Take a sample."""
        redis, postgres = self._stage.cpu()
        self._asked += 2  # including the command for the CPU time
        said: Any = self._stage.redis.info("stats")
        times = psutil.cpu_times()
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
        return Reading(
            contender=self._contender.cpu(),
            redis=redis,
            postgres=postgres,
            api=cpu_seconds(self._api.pid),
            bench=time.process_time(),
            machine=busy,
            reads=int(said["total_reads_processed"]) - self._asked,
        )

    def left(self) -> tuple[int, int]:
        """The number of entries in the stream and of orders in the retry set at the same moment."""
        self._asked += 1
        return self._stage.queued()

    def added(self) -> int:
        """The number of entries ever added to the stream."""
        self._asked += 1
        said: Any = self._stage.redis.xinfo_stream(self._keys.stream)
        return int(said["entries-added"])

    def consumers(self, group: str) -> int:
        """The number of consumers that have begun to read."""
        self._asked += 1
        try:
            consumers: Any = self._stage.redis.xinfo_consumers(self._keys.stream, group)
        except ResponseError:  # no stream or no group yet
            return 0
        return len(consumers)
