"""Draws the comparison of patterns: time, memory and loss, side by side."""

from collections.abc import Sequence
from pathlib import Path

from ingest.bench.chart import OTHER, OURS, bars, figure
from ingest.bench.patterns.plan import PROFILES, Pattern, Plan
from ingest.bench.patterns.run import Killed, Measured


def draw(plan: Plan, measured: Sequence[Measured], killed: Sequence[Killed], path: Path) -> None:
    """Draw it to `PATH.svg` and `PATH.png`."""
    names = [PROFILES[run.pattern].title for run in measured]
    colours = [OURS if run.pattern is Pattern.SERVICE else OTHER for run in measured]
    panels = [
        ("Time", "seconds to the last row", [run.seconds or 0.0 for run in measured], 1),
        ("Memory", "MB at the peak, all processes", [run.memory / 1e6 for run in measured], 0),
    ]
    if killed:
        panels.append(("Loss", "orders lost after a kill half-way", [float(run.lost) for run in killed], 0))
    title = f"{plan.orders:,} orders from an API that answers in {plan.latency:g} s, side by side"
    size = (4 + 2.6 * len(panels), 1.5 + 0.36 * len(names))
    with figure(path, title, columns=len(panels), size=size) as (_, axes):
        for axis, (heading, label, values, digits) in zip(axes, panels, strict=True):
            axis.set_title(heading)
            bars(axis, names, values, label=label, colours=colours, digits=digits)
            if axis is not axes[0]:
                axis.tick_params(axis="y", left=False, labelleft=False)
            axis.set_xlim(0, 1.22 * max([*values, 1.0]))
