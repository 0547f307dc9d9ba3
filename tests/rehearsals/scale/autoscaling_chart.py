"""Draws a rehearsal of autoscaling: the load, the backlog and the workers over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.bench.chart import draw
from ingest.bench.panels import OURS, PALETTE, WARN, Chart, Lines, Series

_LABEL_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample.

    Attributes:
        at: seconds since the start of a run at normal speed.
        rate: orders announced per second.
        backlog: undelivered and pending entries in both lanes, and scheduled retries.
        workers: number of running workers.
    """

    at: float
    rate: float
    backlog: int
    workers: int


def draw_samples(samples: Sequence[Sample], path: Path, title: str) -> None:
    """Write the chart as `PATH.svg` and `PATH.png`."""
    marks = _positions(samples)

    def lines(label: str, values: list[float], colour: str, below: str = "") -> Lines:
        series = Series(label, values, colour, marker="None")
        return Lines(label, marks, [series], (0, max(*values, 1) * 1.3), below=below)

    rows = [
        [lines("announced, orders/s", [sample.rate for sample in samples], PALETTE[1])],
        [lines("orders in the queue", [float(sample.backlog) for sample in samples], WARN)],
        [lines("workers", [float(sample.workers) for sample in samples], OURS, "seconds")],
    ]
    draw(Chart(title, rows, (9, 7), shares_rows=False), path)


def _positions(samples: Sequence[Sample]) -> list[tuple[float, str]]:
    """The position of each sample. The first of each minute is labelled."""
    positions, due = [], 0.0
    for sample in samples:
        positions.append((sample.at, f"{due:.0f}" if sample.at >= due else ""))
        if sample.at >= due:
            due += _LABEL_EVERY
    return positions
