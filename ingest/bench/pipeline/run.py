"""Observes one contender from its start to its end: CPU time, memory, and the kill if one is planned."""

import time
from dataclasses import dataclass

from ingest.bench.pipeline.contenders import PipelineContender, Service
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Reading, Readings
from ingest.bench.trial import wait_until_done
from ingest.lab.programs import Program
from ingest.lab.usage import PeakMemory

# Each sample costs Redis some 30 us.
_SAMPLE_EVERY = 0.025
_SAMPLE_SELDOM = 0.1  # while orders arrive one by one, and Redis has little else to do
# Reading it takes a lock in the measured process for a third of a millisecond.
_MEMORY_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Observed:
    """A contender, observed from its start to its end.

    Attributes:
        startup_cpu: CPU seconds of the contender until all of it had begun to read.
        used: from then until the queue was empty.
        seconds: that this took.
        killed_at: Unix time of the kill, None without one.
        peak_memory: bytes.
        exit_codes: of the contender's parts; None for one that had to be killed.
    """

    startup_cpu: float
    used: Reading
    seconds: float
    killed_at: float | None
    peak_memory: int
    exit_codes: list[int | None]


def observe(plan: Plan, running: PipelineContender, readings: Readings, load: Program | None) -> Observed:
    """Start a contender, wait until the queue is empty, and stop it."""
    running.start()
    with PeakMemory(running.pids, every=_MEMORY_EVERY) as memory:
        _wait_until_ready(running, readings)
        ready, began = readings.read(), time.monotonic()
        if load is not None:
            load.send_line("go")
        killed_at = _wait(plan, running, readings, load)
        seconds, done = time.monotonic() - began, readings.read()
    return Observed(ready.contender, done - ready, seconds, killed_at, memory.peak, running.stop())


def _wait_until_ready(running: PipelineContender, readings: Readings) -> None:
    """Wait until every process of a contender reads from the queue."""

    def sample() -> str | None:
        running.check()
        reading = readings.consumers(running.group)
        return f"{reading} of {running.consumers} read" if reading < running.consumers else None

    wait_until_done(sample, name=running.parts[0].name, every=0.01)


def _wait(plan: Plan, running: PipelineContender, readings: Readings, load: Program | None) -> float | None:
    """Wait until all is sent and nothing is left, killing on the way if the plan says so; the time of the kill."""
    killed_at: float | None = None

    def sample() -> str | None:
        nonlocal killed_at
        is_sent = load is None or load.has_written()
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

    wait_until_done(sample, name=running.parts[0].name, every=_SAMPLE_SELDOM if load else _SAMPLE_EVERY)
    return killed_at


def _kill(running: PipelineContender, plan: Plan) -> None:
    """Kill one worker process, or the first command with all of its processes."""
    if not isinstance(running, Service):
        raise TypeError("only the service finishes what a killed process leaves behind")
    if plan.kill == "worker":
        running.kill_worker()
    else:
        running.kill_command()
