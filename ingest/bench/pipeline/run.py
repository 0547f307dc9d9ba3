"""One run, the same for each contender.

clear ──▶ orders are queued ──▶ contender starts, until all of it reads ──▶ (look until the queue is empty) ──▶ stop ──▶ count

With a rate, orders arrive only when the contender is ready.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.bench.errors import BenchFailed
from ingest.bench.pipeline.contender import start
from ingest.bench.pipeline.findings import find
from ingest.bench.pipeline.gauges import Gauges
from ingest.bench.stage import order_ids
from ingest.bench.usage import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingest.bench.pipeline.contender import Contender
    from ingest.bench.pipeline.findings import Findings
    from ingest.bench.pipeline.gauges import Reading
    from ingest.bench.pipeline.plan import Plan
    from ingest.bench.program import Program
    from ingest.bench.stage import Api, Stage
    from ingest.demo.run.gauges import ApiStats

# Each look costs Redis some 30 us.
_LOOK_EVERY = 0.025
_LOOK_SELDOM = 0.1  # while orders arrive one by one, and Redis has little else to do
_STALLED_AFTER = 120.0
# Reading it takes a lock in the measured process for a third of a millisecond.
_MEMORY_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Sent:
    """When an order was announced, and when it was to be; Unix time."""

    planned: float
    sent: float


@dataclass(frozen=True, slots=True)
class Record:
    """All that one run has shown.

    Attributes:
        load_before: length of the machine's run queue before the run.
        ready: readings when all of the contender had begun to read.
        done: readings when the queue was empty.
        seconds: between these two.
        own_reads: of Redis' reads between these two, how many the bench and its load were the cause of.
        load_cpu: CPU seconds of the load between these two.
        sent: by order.
        killed_at: Unix time of the kill, None without one.
        peak_memory: bytes.
        api: what the external API has counted.
        requests: how often each order was asked for.
        exit_codes: of the contender's parts; None for one that had to be killed.
    """

    plan: Plan
    contender: str
    load_before: float
    ready: Reading
    done: Reading
    seconds: float
    own_reads: int
    load_cpu: float
    sent: Mapping[str, Sent]
    killed_at: float | None
    peak_memory: int
    api: ApiStats
    requests: Mapping[str, int]
    findings: Findings
    dead: int
    exit_codes: list[int | None]


class Run:
    """One contender at one plan.

    Args:
        documents: of the bundled orders, by ID.
    """

    def __init__(self, stage: Stage, api: Api, plan: Plan, name: str, documents: Mapping[str, bytes]) -> None:
        self._stage = stage
        self._api = api
        self._plan = plan
        self._name = name
        self._documents = documents
        self._ids = order_ids(plan.orders, documents)
        self._notes = stage.home / "notes.txt"

    def play(self) -> Record:
        """Let it happen.

        Raises:
            BenchFailed: a part of it died or stands still.
        """
        self._stage.clear()
        self._api.reset()
        load_before = os.getloadavg()[0]
        load, is_backlog = self._load(), not self._plan.rate
        if is_backlog:
            load.tell("go")
            load.read_line()
        contender = start(self._name, self._stage, self._plan, self._api.url)
        with PeakMemory([part.pid for part in contender.parts], every=_MEMORY_EVERY) as memory:
            contender.wait_until_ready()
            gauges = Gauges(self._stage, contender, self._api)
            ready, began, asked = gauges.read(), time.monotonic(), gauges.asked
            if not is_backlog:
                load.tell("go")
            killed_at = self._watch(contender, gauges, load)
            seconds, asked, done = time.monotonic() - began, gauges.asked - asked, gauges.read()
        codes = contender.stop()
        _, batches, load_cpu = ["queued", "0", "0.0"] if is_backlog else load.read_line().split()
        load.kill()
        return Record(
            plan=self._plan,
            contender=self._name,
            load_before=load_before,
            ready=ready,
            done=done,
            seconds=seconds,
            own_reads=asked + int(batches),
            load_cpu=float(load_cpu),
            sent=self._sent(),
            killed_at=killed_at,
            peak_memory=memory.peak,
            api=self._api.stats(),
            requests=self._api.requests_by_id(),
            findings=find(self._stage, contender.group, self._ids, self._documents),
            dead=gauges.dead(),
            exit_codes=codes,
        )

    def _load(self) -> Program:
        """The load, ready to go."""
        ids = self._stage.home / "ids.txt"
        ids.write_text("".join(f"{order_id}\n" for order_id in self._ids))
        arguments = [ids.name, self._notes.name, self._stage.stream, str(self._plan.rate), str(self._plan.seed)]
        load = self._stage.program("ingest.bench.pipeline.load", *arguments, INGEST_REDIS_URL=self._stage.redis_url)
        if load.read_line() != "ready":
            raise load.failed("did not start")
        return load

    def _watch(self, contender: Contender, gauges: Gauges, load: Program) -> float | None:
        """Look until all is sent and nothing is left, killing on the way if that is the plan; the moment of the kill."""
        plan = self._plan
        killed_at: float | None = None
        before, moved = (-1, -1), time.monotonic()
        while True:
            is_sent = not plan.rate or load.has_written()
            left = gauges.left()
            if is_sent and not any(left):
                return killed_at
            if plan.kill_at is not None and killed_at is None:
                stored = gauges.added() - sum(left)
                if stored >= plan.kill_at * plan.orders:
                    killed_at = time.time()
                    contender.kill(plan)
            contender.check()
            if left != before:
                before, moved = left, time.monotonic()
            elif time.monotonic() - moved > _STALLED_AFTER:
                raise BenchFailed(
                    f"{self._name} stands still with {left[0]:,} entries queued, {left[1]:,} to be retried"
                )
            time.sleep(_LOOK_SELDOM if plan.rate else _LOOK_EVERY)

    def _sent(self) -> dict[str, Sent]:
        lines = (line.split() for line in self._notes.read_text().splitlines())
        return {order_id: Sent(float(planned), float(sent)) for order_id, planned, sent in lines}
