"""One way, once, in a process of its own: `python -m ingest.bench.backpressure.trial` reads a `Trial`, writes a `Finding`.

On uvloop, as the service runs. Modules, the drawn times and the loop are there before anything is measured.
"""

import time
import tracemalloc

import msgspec
import uvloop

from ingest.bench.backpressure.calls import Calls, Latency
from ingest.bench.backpressure.ways import way
from ingest.lab.programs import receive, reply


class Trial(msgspec.Struct, frozen=True):
    """What is to be run.

    Attributes:
        way: its name.
        latency: milliseconds, as `Latency` reads them.
        limit: calls in flight.
        traced: whether to trace memory, which takes much of the time.
    """

    way: str
    latency: str
    calls: int
    limit: int
    seed: int
    traced: bool


class Finding(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        seconds: from the first call to the last one's end.
        cpu_seconds: of the process in that time.
        ideal_seconds: had there been `limit` calls in flight all the time.
        peak_bytes: of traced memory.
    """

    seconds: float
    cpu_seconds: float
    ideal_seconds: float
    done: int
    most_in_flight: int
    peak_bytes: int | None


async def measure(trial: Trial) -> Finding:
    """Run it in this process."""
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
