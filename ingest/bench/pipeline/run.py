"""One run, the same for each contender.

clear ──▶ orders are queued ──▶ contender starts, until all of it reads ──▶ (sample until the queue is empty) ──▶ stop ──▶ reconcile

With a rate, orders arrive only when the contender is ready.
"""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from ingest.bench.pipeline.contenders import CONTENDERS, PipelineContender, Service, wait_until_ready
from ingest.bench.pipeline.figures import Figures, Sent, cost, latencies, reconciled, recovery, speed, surroundings
from ingest.bench.pipeline.load import Announced, Load
from ingest.bench.pipeline.outcome import find_outcome
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Readings
from ingest.bench.stage import Stage
from ingest.bench.trial import wait_until_done
from ingest.lab.programs import Program
from ingest.lab.session import order_ids
from ingest.lab.simulated_api import RunningApi
from ingest.lab.usage import PeakMemory

# Each sample costs Redis some 30 us.
_SAMPLE_EVERY = 0.025
_SAMPLE_SELDOM = 0.1  # while orders arrive one by one, and Redis has little else to do
# Reading it takes a lock in the measured process for a third of a millisecond.
_MEMORY_EVERY = 0.5


class Run:
    """One contender at one plan.

    Args:
        documents: of the bundled orders, by ID.
    """

    def __init__(self, stage: Stage, api: RunningApi, plan: Plan, name: str, documents: Mapping[str, bytes]) -> None:
        self._stage = stage
        self._api = api
        self._plan = plan
        self._name = name
        self._documents = documents
        self._ids = order_ids(plan.orders, documents, "BENCH")
        self._notes = stage.home / "notes.txt"

    def measure(self) -> Figures:
        """Run it.

        Raises:
            LabFailed: a part of it ended by itself, or makes no progress.
        """
        plan, stage = self._plan, self._stage
        stage.clear()
        self._api.reset()
        load_before = os.getloadavg()[0]
        load = self._load()
        if not plan.rate:
            load.tell("go")
            load.answer(Announced)
        with closing(CONTENDERS[self._name](stage, plan, self._api.url)) as running:
            running.start()
            with PeakMemory(running.pids, every=_MEMORY_EVERY) as memory:
                wait_until_ready(stage, running)
                readings = Readings(stage, running, self._api)
                ready, began = readings.read(), time.monotonic()
                if plan.rate:
                    load.tell("go")
                killed_at = self._wait(running, readings, load)
                seconds, done = time.monotonic() - began, readings.read()
            exit_codes = running.stop()
        meanwhile = load.answer(Announced) if plan.rate else Announced(0, 0.0)
        load.kill()
        used = replace(done - ready, reads=done.reads - ready.reads - meanwhile.batches)
        api, outcome = self._api.stats(), find_outcome(stage, running.group, self._ids, self._documents)
        return {
            "contender": self._name,
            "in_flight": plan.in_flight,
            **speed(plan, api, outcome),
            **cost(ready.contender, used, len(outcome.rows)),
            "peak_pss_mb": round(memory.peak / 1e6, 1),
            **latencies(plan, self._sent(), outcome),
            **reconciled(api, outcome),
            "exit_codes": exit_codes,
            **({} if killed_at is None else recovery(killed_at, api, outcome)),
            **surroundings(used, meanwhile.cpu_seconds, seconds),
            "load_before": round(load_before, 2),
        }

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

        def sample() -> str | None:
            nonlocal killed_at
            is_sent = not plan.rate or load.has_written()
            queued, retrying = readings.left()
            if is_sent and not queued and not retrying:
                return None
            if plan.kill_at is not None and killed_at is None:
                stored = readings.added() - queued - retrying
                if stored >= plan.kill_at * plan.orders:
                    killed_at = time.time()
                    _kill(running, plan)
            running.check()
            return f"{queued:,} entries queued, {retrying:,} waiting for a retry"

        wait_until_done(sample, name=self._name, every=_SAMPLE_SELDOM if plan.rate else _SAMPLE_EVERY)
        return killed_at

    def _sent(self) -> Sent:
        lines = (line.split() for line in self._notes.read_text().splitlines())
        return {order_id: (float(planned), float(sent)) for order_id, planned, sent in lines}


def _kill(running: PipelineContender, plan: Plan) -> None:
    """Kill one worker process, or the first command with all of its processes."""
    if not isinstance(running, Service):
        raise TypeError("only the service finishes what a killed process leaves behind")
    if plan.kill == "worker":
        running.kill_worker()
    else:
        running.kill_command()
