"""Runs every way for every range of latencies: once for the time, once for the memory, each in a new process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import msgspec

from ingest.bench.backpressure.calls import Latency
from ingest.bench.backpressure.trial import Finding, Trial
from ingest.bench.backpressure.ways import WAYS
from ingest.bench.errors import BenchFailed
from ingest.bench.stage import private_directory
from ingest.bench.trial import STALLED_AFTER, announce, run_trials
from ingest.lab.programs import Program
from ingest.lab.session import orderly_exit
from ingest.lab.watchdog import Watchdog

# For a machine that is busy with something else.
_TIMEOUT_FACTOR = 20
# Seconds that a process needs besides its calls, about.
_START = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared.

    Attributes:
        latencies: ranges, one comparison each.
        calls: for each way.
        limit: calls in flight.
        seed: of the drawn times.
    """

    latencies: Sequence[Latency]
    calls: int
    limit: int
    seed: int

    def ideal_seconds(self, latency: Latency) -> float:
        """What all calls take with the limit always used up, about."""
        return self.calls * (latency.low + latency.high) / 2000 / self.limit

    def expected_seconds(self) -> float:
        """What the whole bench takes, about."""
        return 2 * len(WAYS) * sum(1.1 * self.ideal_seconds(latency) + _START for latency in self.latencies)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both runs of one way with one range of latencies."""

    way: str
    latency: Latency
    timed: Finding
    traced: Finding


def compare(plan: Plan) -> list[Pair]:
    """Run them all, one after the other.

    Raises:
        LabFailed: a process did not end as it should, or its calls were not all made, or too many at a time.
    """
    announce(f"{2 * len(WAYS) * len(plan.latencies)} runs", plan.expected_seconds())
    with orderly_exit() as stack:
        home = private_directory(stack)
        watchdog = stack.enter_context(Watchdog())
        return run_trials([*product(plan.latencies, WAYS)], partial(_pair, plan, home, watchdog), _line)


def _pair(plan: Plan, home: Path, watchdog: Watchdog, case: tuple[Latency, str]) -> Pair:
    latency, way = case
    timed, traced = (
        _run(Trial(way, str(latency), plan.calls, plan.limit, plan.seed, traced), home, watchdog)
        for traced in (False, True)
    )
    return Pair(way, latency, timed, traced)


def _line(_: object, pair: Pair) -> str:
    memory = (pair.traced.peak_bytes or 0) / 1e6
    return f"{pair.latency} ms, {WAYS[pair.way]}: {pair.timed.seconds:.1f} s, {memory:.2f} MB"


def _run(trial: Trial, home: Path, watchdog: Watchdog) -> Finding:
    asked = msgspec.json.encode(trial).decode()
    program = Program("ingest.bench.backpressure.trial", asked, environment={}, home=home, watchdog=watchdog)
    try:
        ideal = trial.calls * Latency.parse(trial.latency).high / 1000 / trial.limit
        answer = program.read_line(within=STALLED_AFTER + _TIMEOUT_FACTOR * ideal)
    finally:
        program.kill()
    found = msgspec.json.decode(answer, type=Finding)
    check(trial, found)
    return found


def check(trial: Trial, found: Finding) -> None:
    """Check that the way did what it is measured for.

    Raises:
        BenchFailed: calls are missing, or too many were in flight.
    """
    if found.done != trial.calls or found.most_in_flight > trial.limit:
        raise BenchFailed(
            f"{WAYS[trial.way]}: {found.done} of {trial.calls} calls were made, "
            f"{found.most_in_flight} at a time where {trial.limit} are allowed"
        )
