"""Reads, while a run goes on: the CPU time of all parts, Redis' round trips, and how much of the queue is left."""

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
    """Everything that only grows, at one moment; seconds of CPU.

    Attributes:
        postgres: None if it runs on another machine.
        api: of the external API.
        bench: of this very process.
        machine: of all processes on the machine.
        reads: how often Redis has read from a socket of others: one for each round trip, more for large ones.
    """

    contender: float
    redis: float
    postgres: float | None
    api: float
    bench: float
    machine: float
    reads: int

    def __sub__(self, earlier: "Reading") -> "Reading":
        """What has been used since then."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return Reading(*(None if now is None or then is None else now - then for now, then in pairs))  # type: ignore[arg-type]

    @property
    def known(self) -> float:
        """CPU seconds of all that belongs to the bench, as far as they are known."""
        return self.contender + self.redis + (self.postgres or 0.0) + self.api + self.bench


class Readings:
    """Reads Redis over one connection, and counts its own round trips, so that they can be subtracted."""

    def __init__(self, stage: Stage, contender: Contender, api: RunningApi) -> None:
        self._api = api
        self._stage = stage
        self._contender = contender
        self._keys = stage.keys()
        self._asked = 0

    def read(self) -> Reading:
        """All of it now."""
        redis, postgres = self._stage.cpu()
        self._asked += 2  # for its CPU time, too
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
        """How many entries are in the stream, and how many wait for a retry, at one moment."""
        self._asked += 1
        return self._stage.queued()

    def added(self) -> int:
        """How many entries the stream has ever had."""
        self._asked += 1
        said: Any = self._stage.redis.xinfo_stream(self._keys.stream)
        return int(said["entries-added"])

    def consumers(self, group: str) -> int:
        """How many consumers have begun to read."""
        self._asked += 1
        try:
            consumers: Any = self._stage.redis.xinfo_consumers(self._keys.stream, group)
        except ResponseError:  # no stream or no group yet
            return 0
        return len(consumers)
