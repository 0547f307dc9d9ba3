"""Runs every limit through every scenario in virtual time, and scores it against the optimum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ingest.bench.adaptive.limits import BEST, OURS, contenders
from ingest.bench.adaptive.scenarios import MOST, SCENARIOS, Scenario
from ingest.bench.adaptive.world import Second, World
from ingest.bench.panels import OURS as OURS_COLOUR
from ingest.bench.panels import PALETTE, Chart, Lines, Series
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.trial import report_progress

_COLUMNS = (
    Column("limit", "limit"),
    Column("throughput", "throughput (% of the optimum)", 1),
    Column("seconds", "mean duration (s)", 2),
    Column("rejected", "rejected (%)", 1),
    Column("most", "highest limit"),
)
_COLOURS = {
    BEST: "#333333",
    OURS: OURS_COLOUR,
    "Gradient2": PALETTE[1],
    "ARC": PALETTE[2],
}
# Markers select solid lines. Lines without a marker are dashed.
_LINE = ","
# Seconds between numbers on the axis.
_TICK = 30
_NOTES = (
    "All limits run in virtual time with the same seeds, and with a client that always has another order.",
    f"All may use {MOST} concurrent requests. The optimum always has as many in flight as the API can process.",
    "The mean duration covers requests that returned a document. Time above the optimum's is spent in the API's queue.",
    "Gradient2 and ARC are implemented from their published formulas, with their default settings.",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One limit in one scenario."""

    scenario: Scenario
    limit: str
    seconds: Sequence[Second]

    @property
    def documents(self) -> int:
        """Total number of documents."""
        return sum(second.documents for second in self.seconds)

    @property
    def rejected(self) -> float:
        """Share of the requests that did not return a document."""
        rejected = sum(second.rejected for second in self.seconds)
        return rejected / max(1, rejected + self.documents)

    @property
    def mean(self) -> float:
        """Mean seconds of a request that returned a document."""
        return sum(second.waited for second in self.seconds) / max(1, self.documents)


def compare(seed: int, scenarios: Sequence[Scenario] = SCENARIOS) -> list[Run]:
    """Run all limits in all scenarios."""
    runs = []
    for scenario in scenarios:
        for name, limit in contenders(scenario.phases, MOST, seed).items():
            world = World(scenario.phases, scenario.queue, scenario.spread, Random(seed), limit)
            runs.append(Run(scenario, name, world.run()))
        report_progress(f"{scenario.name}: done")
    return runs


def score(seed: int) -> Findings:
    """Compare the limits in a table for each scenario and a chart."""
    runs = compare(seed)
    by_name = {scenario.name: [run for run in runs if run.scenario is scenario] for scenario in SCENARIOS}
    return Findings(
        name="adaptive",
        settings={"seed": seed, "most": MOST},
        tables=[Table(name, _COLUMNS, _rows(mine)) for name, mine in by_name.items()],
        charts=[_chart(by_name)],
        notes=_NOTES,
        runs=(),
    )


def _rows(runs: Sequence[Run]) -> list[Row]:
    best = next(run.documents for run in runs if run.limit == BEST)
    return [
        {
            "limit": run.limit,
            "throughput": 100 * run.documents / best,
            "seconds": run.mean,
            "rejected": 100 * run.rejected,
            "most": max(second.limit for second in run.seconds),
        }
        for run in runs
    ]


def _chart(by_name: Mapping[str, Sequence[Run]]) -> Chart:
    return Chart(
        "The limits while the API changes",
        [[_panel(name, runs)] for name, runs in by_name.items()],
        size=(10, 2.4 * len(by_name)),
        has_legend=True,
    )


def _panel(name: str, runs: Sequence[Run]) -> Lines:
    shown = [run for run in runs if run.limit in _COLOURS]
    return Lines(
        label=f"{name}: limit",
        positions=[(at, str(at) if at % _TICK == 0 else "") for at in range(len(runs[0].seconds))],
        series=[
            Series(
                run.limit, [second.limit for second in run.seconds], _COLOURS[run.limit], _LINE * (run.limit != BEST)
            )
            for run in shown
        ],
        limits=(0, 1.05 * MOST),
        below="seconds",
    )
