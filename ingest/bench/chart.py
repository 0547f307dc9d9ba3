"""Draws charts as SVG and PNG, in one style for all benches: units in the axis titles and values at the bars."""

from itertools import chain
from pathlib import Path
from typing import Any, assert_never

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from ingest.bench.panels import WARN, Bars, Chart, GroupedBars, Lines, Panel

_WHOLE = 10
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


def draw(chart: Chart, path: Path) -> None:
    """Write a chart as `PATH.svg` and `PATH.png`, with its suffix before the dot, and create the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(f"{path.name}{chart.suffix}")
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=chart.size)
        figure.suptitle(chart.title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        _draw_panels(figure, chart)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150)


def _draw_panels(figure: Figure, chart: Chart) -> None:
    sharey: Any = "row" if chart.shares_rows else False
    axes = figure.subplots(len(chart.rows), len(chart.rows[0]), squeeze=False, sharey=sharey)
    for axis, panel in zip(axes.flat, chain.from_iterable(chart.rows), strict=True):
        _draw_panel(axis, panel)
    if chart.shares_rows:
        for axis in axes[:, 1:].flat:
            axis.tick_params(axis="y", left=False)
    if chart.has_legend:
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def _draw_panel(axis: Any, panel: Panel) -> None:
    match panel:
        case Bars():
            axis.set_title(panel.heading)
            _draw_bars(axis, panel)
        case GroupedBars():
            axis.set_title(panel.heading)
            _draw_groups(axis, panel)
        case Lines():
            _draw_lines(axis, panel)
        case _:
            assert_never(panel)


def _draw_bars(axis: Any, panel: Bars) -> None:
    positions, ends = range(len(panel.names)), [0.0] * len(panel.names)
    for series in panel.series:
        axis.barh(positions, series.values, left=ends, color=series.colour, height=0.62, label=series.label or None)
        ends = [end + value for end, value in zip(ends, series.values, strict=True)]
    texts = [f"{end:,.{panel.digits}f}" for end in ends]
    axis.bar_label(axis.containers[-1], labels=texts, padding=4, fontsize=9)
    axis.set_yticks(positions, panel.names)
    axis.set_ylim(len(panel.names) - 0.5, -0.5)
    axis.set_xlabel(panel.label)
    axis.grid(visible=False, axis="y")
    if panel.is_log:
        axis.set_xscale("log")
        axis.set_xlim(min(ends) / 4, max(ends) * 4)
        axis.xaxis.set_major_formatter("{x:g}")
    else:
        axis.set_xlim(0, 1.22 * max(*ends, panel.ideal or 0.0, 1e-9))
        _few_ticks(axis.xaxis)
    if panel.ideal is not None:
        axis.axvline(panel.ideal, color=WARN, linestyle="--", linewidth=1)
        axis.annotate(
            f"ideal {panel.ideal:.{panel.digits}f}", (panel.ideal, 1), xycoords=("data", "axes fraction"),
            xytext=(4, 2), textcoords="offset points", color=WARN, fontsize=8,
        )  # fmt: skip
    if len(panel.series) > 1:
        axis.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=len(panel.series), fontsize=8.5,
                    handlelength=1, columnspacing=1, borderpad=0)  # fmt: skip


def _draw_groups(axis: Any, panel: GroupedBars) -> None:
    width = 0.84 / len(panel.series)
    for number, series in enumerate(panel.series):
        positions = [group + (number - (len(panel.series) - 1) / 2) * width for group in range(len(panel.groups))]
        drawn = axis.bar(positions, series.values, width, label=series.label, color=series.colour)
        axis.bar_label(drawn, labels=[f"{height:,.0f}" for height in series.values], padding=2, fontsize=8)
    axis.set_xticks(range(len(panel.groups)), panel.groups)
    axis.set_xlabel(panel.below)
    axis.set_ylabel(panel.label)
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.15)
    _few_ticks(axis.yaxis)


def _draw_lines(axis: Any, panel: Lines) -> None:
    positions = [position for position, _ in panel.positions]
    for series in panel.series:
        style: Any = (
            {"marker": series.marker, "linewidth": 2} if series.marker else {"linestyle": "--", "linewidth": 1.3}
        )
        axis.plot(positions, series.values, color=series.colour, label=series.label, **style)
        for position, value, offset in zip(positions, series.values, series.offsets or (), strict=False):
            # The white background separates it from the grid.
            axis.annotate(
                f"{value:,.0f}" if value >= _WHOLE else f"{value:.1f}", (position, value), xytext=(0, offset),
                textcoords="offset points", ha="center", fontsize=8.5, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip
    _few_ticks(axis.yaxis)
    if panel.is_log:
        axis.set_xscale("log")
    axis.minorticks_off()
    labelled = [(position, text) for position, text in panel.positions if text]
    axis.set_xticks([position for position, _ in labelled], [text for _, text in labelled])
    axis.margins(x=0.06)
    axis.set_ylim(panel.limits)
    axis.set_ylabel(panel.label)
    axis.set_xlabel(panel.below)
    axis.legend(loc="upper left", fontsize=9)
    if panel.marked is not None:
        position, text = panel.marked
        axis.axvline(position, color=WARN, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
        axis.annotate(text, (position, 0), xytext=(5, 6), textcoords="offset points", color=WARN, fontsize=9.5,
                      fontweight="bold")  # fmt: skip


def _few_ticks(axis: Any) -> None:
    """Few ticks, with commas between thousands."""
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
