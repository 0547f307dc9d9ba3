"""Runs one way once in a separate process.

`python -m ingest.bench.backpressure.trial` reads a `Trial` and writes a `Finding`. It uses uvloop, like the service.
Modules, the drawn times and the loop exist before the measurement begins.
"""

import time
import tracemalloc

import msgspec
import uvloop

from ingest.bench.backpressure.calls import Calls, Latency
from ingest.bench.backpressure.ways import way
from ingest.lab.programs import receive, reply


class Trial(msgspec.Struct, frozen=True):
    """The parameters of a run.

    Attributes:
        way: name of the way.
        latency: range of milliseconds for `Latency`.
        limit: maximum number of calls in flight.
        traced: whether to trace memory, which slows the run down.
    """

    way: str
    latency: str
    calls: int
    limit: int
    seed: int
    traced: bool


class Finding(msgspec.Struct, frozen=True):
    """The results of a run.

    Attributes:
        seconds: from the first call to the end of the last one.
        cpu_seconds: CPU time of the process during these seconds.
        ideal_seconds: duration with `limit` calls in flight all the time.
        peak_bytes: peak of traced memory.
    """

    seconds: float
    cpu_seconds: float
    ideal_seconds: float
    done: int
    most_in_flight: int
    peak_bytes: int | None


async def measure(trial: Trial) -> Finding:
    """Run the trial in this process."""
    run = way(trial.way)
    drawn = Latency.parse(trial.latency).draws(trial.calls, trial.seed)
    calls = Calls(drawn)
    if trial.traced:
        tracemalloc.start()
    started, worked = time.perf_counter(), time.process_time()
    await run(calls, trial.limit)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    return Finding(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        ideal_seconds=sum(drawn) / trial.limit,
        done=calls.done,
        most_in_flight=calls.most_in_flight,
        peak_bytes=tracemalloc.get_traced_memory()[1] if trial.traced else None,
    )


if __name__ == "__main__":
    reply(uvloop.run(measure(receive(Trial))))
