"""Runs the comparison and reports it: a table for each range of latencies, and what a reader has to know."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ingest.bench.backpressure.calls import Latency
from ingest.bench.backpressure.compare import Pair, Plan, compare
from ingest.bench.backpressure.ways import WAYS
from ingest.bench.machine import Machine
from ingest.bench.report import Cell, Column, Report, Result, Table

# Seconds and MB that others have measured, for these calls and this limit.
_PUBLISHED = {"batches": (41.7, 0.8), "inside": (30.9, 152.0), "callback": (30.2, 1.0), "ending": (30.2, 0.84)}
_PUBLISHED_FOR = (100_000, 500, Latency(100, 200))

_COLUMNS = (
    Column("way", "way"),
    Column("seconds", "time (s)", 2),
    Column("over_ideal", "over ideal", 3),
    Column("cpu_us_per_call", "CPU (µs per call)", 1),
    Column("peak_mb", "peak memory (MB)", 2),
    Column("most_in_flight", "most in flight"),
)
_PUBLISHED_COLUMNS = (
    Column("published_seconds", "published time (s)", 1),
    Column("published_mb", "published memory (MB)", 2),
)

_NOTES = (
    (
        "Each way runs on uvloop, as the service does, in a fresh process, twice: once for time and CPU, once with tracemalloc for "
        "the peak of memory that Python has handed out; modules and the drawn times are there before and do not count."
    ),
    "Ideal is the sum of all drawn times divided by the limit.",
    "With the semaphore inside the task, memory grows with the calls that wait; in all other ways with the limit alone.",
    (
        "Ours is the service's own `Worker`, with its default settings, on a queue and a table in memory and an external API that "
        "sleeps: time, CPU and memory are of all that the flow does for a delivery (lease, JSON to a checked order, batch, ack, "
        "metrics), which the other ways have nothing of; Redis, HTTP and PostgreSQL are not in it."
    ),
)


def run(plan: Plan, command: str) -> Result:
    """Run the plan; `command` is as it was typed.

    Raises:
        LabFailed: a process did not end as it should, or did not do what it is measured for.
    """
    machine = Machine.here()
    pairs = compare(plan)

    def draw_pairs(path: Path) -> None:
        from ingest.bench.backpressure.picture import draw  # noqa: PLC0415  Matplotlib takes half a second

        draw(plan, pairs, path)

    return Result(_report(plan, pairs, command, machine), draw_pairs)


def _report(plan: Plan, pairs: Sequence[Pair], command: str, machine: Machine) -> Report:
    return Report(
        name="backpressure",
        command=command,
        machine=machine,
        settings={
            "calls": plan.calls,
            "limit": plan.limit,
            "latency": [str(latency) for latency in plan.latencies],
            "seed": plan.seed,
        },
        tables=[_table(plan, latency, pairs) for latency in plan.latencies],
        notes=_NOTES,
        runs=[
            {"way": pair.way, "latency_ms": str(pair.latency), "traced": found.peak_bytes is not None}
            | msgspec.to_builtins(found)
            for pair in pairs
            for found in (pair.timed, pair.traced)
        ],
    )


def _table(plan: Plan, latency: Latency, pairs: Sequence[Pair]) -> Table:
    is_published = (plan.calls, plan.limit, latency) == _PUBLISHED_FOR
    mine = [pair for pair in pairs if pair.latency == latency]
    ideal = mine[0].timed.ideal_seconds
    return Table(
        f"{plan.calls:,} calls of {latency} ms, {plan.limit:,} in flight: {ideal:.2f} s at best",
        (*_COLUMNS, *(_PUBLISHED_COLUMNS if is_published else ())),
        [_row(pair) | (_published(pair.way) if is_published else {}) for pair in mine],
    )


def _row(pair: Pair) -> dict[str, Cell]:
    timed = pair.timed
    return {
        "way": WAYS[pair.way],
        "seconds": timed.seconds,
        "over_ideal": timed.seconds / timed.ideal_seconds,
        "cpu_us_per_call": timed.cpu_seconds / timed.done * 1e6,
        "peak_mb": None if pair.traced.peak_bytes is None else pair.traced.peak_bytes / 1e6,
        "most_in_flight": timed.most_in_flight,
    }


def _published(way: str) -> dict[str, Cell]:
    seconds, megabytes = _PUBLISHED.get(way, (None, None))
    return {"published_seconds": seconds, "published_mb": megabytes}
