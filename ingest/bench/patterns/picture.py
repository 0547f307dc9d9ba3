"""The bench as a picture: time, memory and loss, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.bench.chart import OTHER, OURS, bars, figure
from ingest.bench.patterns.plan import PROFILES, Pattern
from ingest.bench.patterns.result import MB

if TYPE_CHECKING:
    from pathlib import Path

    from ingest.bench.patterns.result import Result


def draw(result: Result, path: Path) -> None:
    """Draw it to `PATH.svg` and `PATH.png`."""
    patterns = [run.pattern for run in result.measured]
    names = [PROFILES[pattern].title for pattern in patterns]
    colours = [OURS if pattern is Pattern.SERVICE else OTHER for pattern in patterns]
    panels = [
        ("Time", "seconds to the last row", [run.seconds or 0.0 for run in result.measured], 1),
        ("Memory", "MB at the peak, all processes", [run.memory / MB for run in result.measured], 0),
    ]
    if result.killed:
        panels.append(("Loss", "orders lost after a kill half-way", [float(run.lost) for run in result.killed], 0))
    title = f"{result.plan.orders:,} orders from an API that answers in {result.plan.latency:g} s, side by side"
    size = (4 + 2.6 * len(panels), 1.5 + 0.36 * len(names))
    with figure(path, title, columns=len(panels), size=size) as (_, axes):
        for axis, (heading, label, values, digits) in zip(axes, panels, strict=True):
            axis.set_title(heading)
            bars(axis, names, values, label=label, colours=colours, digits=digits)
            if axis is not axes[0]:
                axis.tick_params(axis="y", left=False, labelleft=False)
            axis.set_xlim(0, 1.22 * max([*values, 1.0]))
