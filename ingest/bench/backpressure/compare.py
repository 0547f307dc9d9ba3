"""Runs every way for every range of latencies, once for time and once for memory, each in a new process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import msgspec

from ingest.bench.backpressure.calls import Latency
from ingest.bench.backpressure.plan import Plan
from ingest.bench.backpressure.trial import Finding, Trial
from ingest.bench.backpressure.ways import OURS, WAYS
from ingest.bench.errors import BenchFailed
from ingest.bench.panels import OTHER, Bars, Chart, Series
from ingest.bench.panels import OURS as OUR_COLOUR
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.trial import STALLED_AFTER, announce, run_trials
from ingest.lab.programs import Program
from ingest.lab.session import orderly_exit, private_directory
from ingest.lab.watchdog import Watchdog

# Allowance for a busy machine.
_TIMEOUT_FACTOR = 20

# Published seconds and MB for these calls and this limit.
_PUBLISHED: dict[str, Row] = {
    "batches": {"published_seconds": 41.7, "published_mb": 0.8},
    "inside": {"published_seconds": 30.9, "published_mb": 152.0},
    "callback": {"published_seconds": 30.2, "published_mb": 1.0},
    "ending": {"published_seconds": 30.2, "published_mb": 0.84},
}
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
_COLOURS = [OUR_COLOUR if name == OURS else OTHER for name in WAYS]

_NOTES = (
    (
        "Each way runs twice on uvloop, like the service, in a fresh process: once for time and CPU, and once with "
        "tracemalloc for the peak of memory that Python has allocated. Modules and the drawn times exist before and "
        "are not counted."
    ),
    "Ideal is the sum of all drawn times divided by the limit.",
    "With the semaphore inside the task, memory grows with the waiting calls, and in all other ways only with the limit.",
    (
        "Ours is the service's `Worker` with its default settings, on a queue and a table in memory and an external "
        "API that sleeps. Its time, CPU and memory include the whole flow of a delivery (lease, JSON to a checked "
        "order, batch, ack, metrics), which the other ways do not have. Redis, HTTP and PostgreSQL are not included."
    ),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both runs of one way with one range of latencies."""

    way: str
    latency: Latency
    timed: Finding
    traced: Finding

    @property
    def peak_mb(self) -> float:
        """The peak memory."""
        return (self.traced.peak_bytes or 0) / 1e6

    def row(self) -> Row:
        """The row of the table."""
        return {
            "way": WAYS[self.way],
            "seconds": self.timed.seconds,
            "over_ideal": self.timed.seconds / self.timed.ideal_seconds,
            "cpu_us_per_call": self.timed.cpu_seconds / self.timed.done * 1e6,
            "peak_mb": self.peak_mb,
            "most_in_flight": self.timed.most_in_flight,
        }

    def runs(self) -> list[Row]:
        """Both runs for the report."""
        return [
            {"way": self.way, "latency_ms": str(self.latency), "traced": found.peak_bytes is not None}
            | msgspec.to_builtins(found)
            for found in (self.timed, self.traced)
        ]


def run(plan: Plan) -> Findings:
    """Run all ways in sequence.

    Raises:
        LabFailed: a process failed, or did not make all calls, or made too many concurrently.
    """
    announce(f"{2 * len(WAYS) * len(plan.latencies)} runs", plan.expected_seconds())
    with orderly_exit() as stack:
        home = private_directory(stack)
        watchdog = stack.enter_context(Watchdog())
        pairs = run_trials([*product(plan.latencies, WAYS)], partial(_pair, plan, home, watchdog), _line)
    by_latency = [[pair for pair in pairs if pair.latency == latency] for latency in plan.latencies]
    return Findings(
        name="backpressure",
        settings={
            "calls": plan.calls,
            "limit": plan.limit,
            "latency": [str(latency) for latency in plan.latencies],
            "seed": plan.seed,
        },
        tables=[_table(plan, mine) for mine in by_latency],
        charts=[_chart(plan, by_latency)],
        notes=_NOTES,
        runs=[run for pair in pairs for run in pair.runs()],
    )


def check(trial: Trial, found: Finding) -> None:
    """Check that the way made all calls within the limit.

    Raises:
        BenchFailed: calls are missing, or too many were in flight.
    """
    if found.done != trial.calls or found.most_in_flight > trial.limit:
        raise BenchFailed(
            f"{WAYS[trial.way]}: {found.done} of {trial.calls} calls were made, "
            f"with {found.most_in_flight} in flight and a limit of {trial.limit}"
        )


def _pair(plan: Plan, home: Path, watchdog: Watchdog, case: tuple[Latency, str]) -> Pair:
    latency, way = case

    def measured(*, traced: bool) -> Finding:
        trial = Trial(way, str(latency), plan.calls, plan.limit, plan.seed, traced)
        program = Program("ingest.bench.backpressure.trial", environment={}, home=home, watchdog=watchdog)
        longest = plan.calls * latency.high / 1000 / plan.limit
        try:
            program.send(trial)
            found = program.read_reply(Finding, within=STALLED_AFTER + _TIMEOUT_FACTOR * longest)
        finally:
            program.kill()
        check(trial, found)
        return found

    return Pair(way, latency, measured(traced=False), measured(traced=True))


def _line(_: object, pair: Pair) -> str:
    return f"{pair.latency} ms, {WAYS[pair.way]}: {pair.timed.seconds:.1f} s, {pair.peak_mb:.2f} MB"


def _table(plan: Plan, pairs: Sequence[Pair]) -> Table:
    latency, ideal = pairs[0].latency, pairs[0].timed.ideal_seconds
    is_published = (plan.calls, plan.limit, latency) == _PUBLISHED_FOR
    return Table(
        f"{plan.calls:,} calls of {latency} ms, {plan.limit:,} in flight: {ideal:.2f} s at best",
        (*_COLUMNS, *(_PUBLISHED_COLUMNS if is_published else ())),
        [pair.row() | (_PUBLISHED.get(pair.way, {}) if is_published else {}) for pair in pairs],
    )


def _chart(plan: Plan, by_latency: Sequence[Sequence[Pair]]) -> Chart:
    """Time and peak memory by way, in a row of panels for each range of latencies."""
    rows = []
    for pairs in by_latency:
        names, ideal = [WAYS[pair.way] for pair in pairs], pairs[0].timed.ideal_seconds
        times = Series("", [pair.timed.seconds for pair in pairs], _COLOURS)
        peaks = Series("", [pair.peak_mb for pair in pairs], _COLOURS)
        digits, heading = 1 if ideal >= 10 else 2, f"calls of {pairs[0].latency} ms"
        rows.append([
            Bars("time (s)", names, [times], heading, digits, ideal=ideal),
            Bars("peak memory (MB, log scale)", names, [peaks], digits=2, is_log=True),
        ])  # fmt: skip
    title = f"Time and peak memory of {plan.calls:,} calls with {plan.limit:,} in flight"
    return Chart(title, rows, (11, 0.6 + 2.5 * len(rows)))
