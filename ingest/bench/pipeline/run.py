"""Observes the CPU time and memory of one contender from its start to its end, including a planned kill."""

import time
from dataclasses import dataclass

from ingest.bench.pipeline.contenders import PipelineContender, Service
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Reading, Readings
from ingest.bench.trial import wait_until_done
from ingest.lab.programs import Program
from ingest.lab.usage import PeakMemory

# Each sample costs Redis about 30 us.
_SAMPLE_EVERY = 0.025
_SAMPLE_SELDOM = 0.1  # while orders arrive one by one and Redis is mostly idle
# Reading it takes a lock in the measured process for 0.3 ms.
_MEMORY_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Observed:
    """A contender, observed from its start to its end.

    Attributes:
        startup_cpu: CPU seconds of the contender until all of its processes had begun to read.
        used: usage from then until the queue was empty.
        seconds: duration of that time.
        killed_at: Unix time of the kill, or None.
        peak_memory: bytes.
        exit_codes: exit codes of the contender's parts, with None for a part that had to be killed.
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
    """Wait until all orders are sent and the queue is empty, and return the time of the kill if there is one."""
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
        raise TypeError("only the service finishes the orders of a killed process")
    if plan.kill == "worker":
        running.kill_worker()
    else:
        running.kill_command()
