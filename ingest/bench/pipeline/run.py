"""One run, the same for each contender.

clear ──▶ orders are queued ──▶ contender starts, until all of it reads ──▶ (sample until the queue is empty) ──▶ stop ──▶ reconcile

With a rate, orders arrive only when the contender is ready.
"""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from ingest.bench.pipeline.contenders import CONTENDERS, PipelineContender, Service, wait_until_ready
from ingest.bench.pipeline.load import Announced, Load
from ingest.bench.pipeline.outcome import Outcome, find_outcome
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Reading, Readings
from ingest.bench.stage import Api, Stage
from ingest.bench.trial import wait_until
from ingest.lab.endpoints import ApiStats
from ingest.lab.programs import Program
from ingest.lab.session import order_ids
from ingest.lab.usage import PeakMemory

# Each sample costs Redis some 30 us.
_SAMPLE_EVERY = 0.025
_SAMPLE_SELDOM = 0.1  # while orders arrive one by one, and Redis has little else to do
# Reading it takes a lock in the measured process for a third of a millisecond.
_MEMORY_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Sent:
    """When an order was announced, and when it was due; Unix time."""

    planned: float
    sent: float


@dataclass(frozen=True, slots=True)
class Record:
    """All that one run has measured.

    Attributes:
        load_before: length of the machine's run queue before the run.
        startup_cpu: CPU seconds of the contender until all of it had begun to read.
        used: from then until the queue was empty.
        seconds: that this took.
        own_reads: of Redis' reads in this time, how many the bench and its load caused.
        load_cpu: CPU seconds of the load in this time.
        sent: by order.
        killed_at: Unix time of the kill, None without one.
        peak_memory: bytes.
        api: what the external API has counted.
        exit_codes: of the contender's parts; None for one that had to be killed.
    """

    plan: Plan
    contender: str
    load_before: float
    startup_cpu: float
    used: Reading
    seconds: float
    own_reads: int
    load_cpu: float
    sent: Mapping[str, Sent]
    killed_at: float | None
    peak_memory: int
    api: ApiStats
    outcome: Outcome
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
        self._ids = order_ids(plan.orders, documents, "BENCH")
        self._notes = stage.home / "notes.txt"

    def measure(self) -> Record:
        """Run it.

        Raises:
            LabFailed: a part of it ended by itself, or makes no progress.
        """
        self._stage.clear()
        self._api.reset()
        load_before = os.getloadavg()[0]
        load, is_backlog = self._load(), not self._plan.rate
        if is_backlog:
            load.tell("go")
            load.answer(Announced)
        with closing(CONTENDERS[self._name](self._stage, self._plan, self._api.url)) as running:
            running.start()
            with PeakMemory(running.pids, every=_MEMORY_EVERY) as memory:
                wait_until_ready(self._stage, running)
                readings = Readings(self._stage, running, self._api)
                ready, began, asked = readings.read(), time.monotonic(), readings.asked
                if not is_backlog:
                    load.tell("go")
                killed_at = self._wait(running, readings, load)
                seconds, asked, done = time.monotonic() - began, readings.asked - asked, readings.read()
            exit_codes = running.stop()
        meanwhile = Announced(0, 0.0) if is_backlog else load.answer(Announced)
        load.kill()
        return Record(
            plan=self._plan,
            contender=self._name,
            load_before=load_before,
            startup_cpu=ready.contender,
            used=done - ready,
            seconds=seconds,
            own_reads=asked + meanwhile.batches,
            load_cpu=meanwhile.cpu_seconds,
            sent=self._sent(),
            killed_at=killed_at,
            peak_memory=memory.peak,
            api=self._api.stats(),
            outcome=find_outcome(self._stage, running.group, self._ids, self._documents),
            exit_codes=exit_codes,
        )

    def _load(self) -> Program:
        """The load, ready to announce orders."""
        plan, stage = self._plan, self._stage
        load = stage.program("ingest.bench.pipeline.load", INGEST_REDIS_URL=stage.redis_url)
        load.send(Load(stage.write_ids(self._ids), self._notes.name, stage.stream, plan.rate, plan.seed))
        if load.read_line() != "ready":
            raise load.failed("did not start")
        return load

    def _wait(self, running: PipelineContender, readings: Readings, load: Program) -> float | None:
        """Wait until all is sent and nothing is left, killing on the way if the plan says so; the time of the kill."""
        plan = self._plan
        killed_at: float | None = None
        left = (-1, -1)

        def is_done() -> bool:
            nonlocal left
            is_sent = not plan.rate or load.has_written()
            left = readings.left()
            return is_sent and not any(left)

        def sample() -> str:
            nonlocal killed_at
            if plan.kill_at is not None and killed_at is None:
                stored = readings.added() - sum(left)
                if stored >= plan.kill_at * plan.orders:
                    killed_at = time.time()
                    _kill(running, plan)
            running.check()
            return f"{left[0]:,} entries queued, {left[1]:,} waiting for a retry"

        wait_until(is_done, sample, name=self._name, every=_SAMPLE_SELDOM if plan.rate else _SAMPLE_EVERY)
        return killed_at

    def _sent(self) -> dict[str, Sent]:
        lines = (line.split() for line in self._notes.read_text().splitlines())
        return {order_id: Sent(float(planned), float(sent)) for order_id, planned, sent in lines}


def _kill(running: PipelineContender, plan: Plan) -> None:
    """Kill one worker process, or the first command with all of its processes."""
    if not isinstance(running, Service):
        raise TypeError("only the service finishes what a killed process leaves behind")
    if plan.kill == "worker":
        running.kill_worker()
    else:
        running.kill_command()
