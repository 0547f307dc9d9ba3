"""Runs every way, for every range of latencies: once for the time, once for the memory, each in a fresh process."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ingest.bench.backpressure.calls import Latency
from ingest.bench.backpressure.trial import Finding, Trial
from ingest.bench.backpressure.ways import WAYS
from ingest.bench.errors import BenchFailed
from ingest.bench.program import Program
from ingest.lab.servers import sigterm_raises
from ingest.lab.servers.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# For a machine that is busy with something else.
_PATIENCE = 120.0
_PATIENT_FACTOR = 20
# What a process needs beside its calls, about.
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


def compare(plan: Plan, tell: Callable[[str], None]) -> list[Pair]:
    """Run them all, one after the other.

    Args:
        plan: what to run.
        tell: takes a line for each step.

    Raises:
        BenchFailed: a process did not end as it should, or its calls were not all made, or too many at a time.
    """
    tell(f"{2 * len(WAYS) * len(plan.latencies)} runs, about {plan.expected_seconds() / 60:.1f} minutes together")
    with ExitStack() as stack:
        stack.enter_context(sigterm_raises())
        home = Path(tempfile.mkdtemp(prefix="ingest-bench-"))
        watchdog = stack.enter_context(Watchdog(removes=home))
        stack.callback(shutil.rmtree, home)
        pairs = []
        for latency in plan.latencies:
            for way in WAYS:
                timed, traced = (
                    _run(_trial(plan, way, latency, traced=traced), home, watchdog) for traced in (False, True)
                )
                pairs.append(Pair(way, latency, timed, traced))
                tell(
                    f"{len(pairs)}/{len(WAYS) * len(plan.latencies)} {latency} ms, {WAYS[way]}: {timed.seconds:.1f} s, "
                    f"{(traced.peak_bytes or 0) / 1e6:.2f} MB"
                )
    return pairs


def _trial(plan: Plan, way: str, latency: Latency, *, traced: bool) -> Trial:
    return Trial(way, str(latency), plan.calls, plan.limit, plan.seed, traced)


def _run(trial: Trial, home: Path, watchdog: Watchdog) -> Finding:
    asked = msgspec.json.encode(trial).decode()
    program = Program("ingest.bench.backpressure.trial", asked, environment={}, home=home, watchdog=watchdog)
    try:
        ideal = trial.calls * Latency.parse(trial.latency).high / 1000 / trial.limit
        answer = program.read_line(within=_PATIENCE + _PATIENT_FACTOR * ideal)
    finally:
        program.kill()
    found = msgspec.json.decode(answer, type=Finding)
    check(trial, found)
    return found


def check(trial: Trial, found: Finding) -> None:
    """See that the way did what it is measured for.

    Raises:
        BenchFailed: calls are missing, or were too many at a time.
    """
    if found.done != trial.calls or found.most_in_flight > trial.limit:
        raise BenchFailed(
            f"{WAYS[trial.way]}: {found.done} of {trial.calls} calls were made, "
            f"{found.most_in_flight} at a time where {trial.limit} are allowed"
        )
