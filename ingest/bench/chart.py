"""Draws charts for reports, in one style for all benches.

Units are in the axis titles, values at the bars. A colour has one meaning throughout: ours is blue, what it is compared
with is grey. Written as SVG and PNG.
"""

from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

OURS = "#1f5fa8"
OTHER = "#8a929c"
WARN = "#c8501e"
PALETTE = (OURS, "#e08a1e", "#3d8f5f", "#8a4fa3", WARN, OTHER)

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e6e9",
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "ingest",
}


@contextmanager
def figure(
    path: Path, title: str, *, rows: int = 1, columns: int = 1, size: tuple[float, float] = (8, 4.5)
) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes (one, or an array of them), written to `PATH.svg` and `PATH.png` when the block is left.

    Args:
        path: where, without a suffix; its directory is made.
        title: a sentence that says what the chart shows.
        rows: of axes.
        columns: of axes.
        size: inches.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        drawn, axes = plt.subplots(rows, columns, figsize=size)
        drawn.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        try:
            yield drawn, axes
            drawn.savefig(path.with_suffix(".svg"), metadata={"Date": None})
            drawn.savefig(path.with_suffix(".png"), dpi=150)
        finally:
            plt.close(drawn)


def bars(
    axis: Any, names: list[str], values: list[float], *, label: str, colours: list[str] | None = None, digits: int = 0
) -> None:
    """Horizontal bars from the top down, each with its value.

    Args:
        axis: where.
        names: what each bar is.
        values: in the unit of `label`.
        label: the axis title, with its unit.
        colours: of the bars; grey unless given.
        digits: of the values shown.
    """
    positions = range(len(names))
    drawn = axis.barh(positions, values, color=colours or [OTHER] * len(names), height=0.62)
    axis.bar_label(drawn, labels=[f"{value:,.{digits}f}" for value in values], padding=4, fontsize=9)
    axis.set_yticks(positions, names)
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.grid(visible=False, axis="y")
    axis.margins(x=0.16)
    thousands(axis.xaxis)


def grouped_bars(
    axis: Any, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float], str]], *, width: float
) -> None:
    """Vertical bars in groups, each with its value.

    Args:
        axis: where.
        groups: names below the groups.
        series: the label, the value in each group, and the colour of each bar of a group.
        width: of a bar; the distance between groups is 1.
    """
    for number, (label, values, colour) in enumerate(series):
        positions = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axis.bar(positions, values, width, label=label, color=colour)
        axis.bar_label(drawn, labels=[f"{height:,.0f}" for height in values], padding=2, fontsize=8)
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.15)


def thousands(axis: Any) -> None:
    """Few ticks on an x or y axis, with commas between thousands."""
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
