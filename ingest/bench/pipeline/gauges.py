"""What is read off while a run goes on: Redis, CPU, memory, and how much of the queue is left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from ingest.bench.usage import cpu_seconds

if TYPE_CHECKING:
    from ingest.bench.pipeline.contender import Contender
    from ingest.bench.stage import Api, Stage


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that only grows, at one moment; seconds of CPU.

    Attributes:
        postgres: None if it runs on another machine.
        api: of the external API.
        bench: of this very process.
        machine: of all processes together, whoever they belong to.
        reads: how often Redis has read from a socket: one for each round trip, more for large ones.
    """

    contender: float
    redis: float
    postgres: float | None
    api: float
    bench: float
    machine: float
    reads: int


class Gauges:
    """Reads Redis over one connection, and counts how often, so that it can be taken off."""

    def __init__(self, stage: Stage, contender: Contender, api: Api) -> None:
        self._api = api
        self._stage = stage
        self._contender = contender
        self._stream, self._retry, self._dead = (
            f"ingest:{{{stage.stream}}}:{part}" for part in ("stream", "retry", "dead")
        )
        self.asked = 0

    def read(self) -> Reading:
        """All of it now."""
        redis, postgres = self._stage.cpu()
        self.asked += 2  # for its CPU time, too
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
            reads=int(said["total_reads_processed"]),
        )

    def left(self) -> tuple[int, int]:
        """How many entries are in the stream, and how many wait for a retry, at one moment."""
        self.asked += 1
        with self._stage.redis.pipeline(transaction=True) as pipe:
            pipe.xlen(self._stream)
            pipe.zcard(self._retry)
            stream, retry = pipe.execute()
        return int(stream), int(retry)

    def added(self) -> int:
        """How many entries the stream has ever had."""
        self.asked += 1
        said: Any = self._stage.redis.xinfo_stream(self._stream)
        return int(said["entries-added"])

    def dead(self) -> int:
        """How many dead letters there are."""
        return int(self._stage.redis.xlen(self._dead))
