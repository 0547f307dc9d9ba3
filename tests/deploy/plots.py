"""Draws a dashboard's panels with matplotlib to show the results of their queries.

It follows the panels' places, units, colours, stacking and thresholds, but cannot reproduce Grafana's drawing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import PowerNorm
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from deploy.watching import Answer, Panel, Series

# Inches of a column, of a unit of height, of the line above all, and around a graph.
_COLUMN, _UNIT, _HEADER, _GAP = 0.92, 0.46, 0.6, 0.05
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.16, 0.42, 0.3
# Inches in a legend of a line, of the mark before a name, and of a letter.
_LEGEND_LINE, _MARK, _LETTER = 0.19, 0.5, 0.072

_BACKGROUND, _CARD, _EDGE, _GRID, _INK, _QUIET = "#f1f2f4", "#ffffff", "#dcdfe3", "#eceef1", "#24292e", "#6b737c"
# Those of Grafana's colours that have names here.
_NAMED = {
    "green": "#56a64b", "light-green": "#96d98d", "yellow": "#e0b400", "orange": "#ff780a", "red": "#e02f44", "dark-red": "#ad0317", "blue": "#3274d9",
    "light-blue": "#8ab8ff", "dark-blue": "#1250b0", "purple": "#a352cc", "light-purple": "#ca95e5",
}  # fmt: skip
_OTHERS = ("#447ebc", "#ba43a9", "#508642", "#c15c17", "#705da0", "#0a437c", "#cca300", "#6d1f62", "#890f02", "#1f78c1")
_STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 8.5, "axes.edgecolor": _EDGE, "axes.facecolor": _CARD, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": _GRID, "xtick.color": _QUIET,
    "ytick.color": _QUIET, "legend.frameon": False, "legend.fontsize": 8.5,
}  # fmt: skip

_SCALES = {
    "s": ((86400.0, " d"), (3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "short": ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1.0, "")),
}


def draw(path: Path, title: str, answered: Sequence[tuple[Panel, list[Answer]]], times: Sequence[float]) -> None:
    """Draw all panels into one picture.

    Args:
        path: path of the PNG.
        title: title of the dashboard.
        answered: the panels with the results of their queries.
        times: the Unix seconds of the results, ascending.
    """
    sheet = _Sheet(title, max(panel.place.y + panel.place.height for panel, _ in answered), times)
    with mpl.rc_context(_STYLE):
        figure = sheet.begin()
        try:
            for panel, answers in answered:
                named = [
                    (_name(answer.target.legend, series.labels), sheet.values(series))
                    for answer in answers
                    for series in answer.series
                ]
                match panel.kind:
                    case "row":
                        sheet.heading(panel)
                    case "stat":
                        _number(sheet, panel, named)
                    case "timeseries":
                        _graph(sheet, panel, named)
                    case "state-timeline":
                        _timeline(sheet, panel, named)
                    case "heatmap":
                        _heat_map(sheet, panel, named)
                    case _:
                        raise ValueError(f"no way to draw a panel of the kind {panel.kind}")
            figure.savefig(path, dpi=100)
        finally:
            plt.close(figure)


Named = Sequence[tuple[str, Any]]


@dataclass(slots=True)
class _Sheet:
    """The paper, which converts places on the dashboard into places on the picture."""

    title: str
    rows: int
    times: Sequence[float]
    figure: Any = None

    def begin(self) -> Any:
        """A figure with nothing but its title."""
        height = self._height
        self.figure = plt.figure(figsize=(24 * _COLUMN, height), facecolor=_BACKGROUND)
        middle = 1 - 0.33 / height
        first, last = (datetime.fromtimestamp(self.times[at], tz=UTC) for at in (0, -1))
        when = f"{first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC"
        self.figure.text(0.005, middle, self.title, fontsize=17, fontweight="bold", color=_INK, va="center")
        self.figure.text(0.995, middle, when, fontsize=11, color=_QUIET, va="center", ha="right")
        return self.figure

    def heading(self, panel: Panel) -> None:
        """The line above a section."""
        left, bottom, _, height = self._box(panel)
        self.figure.text(
            left + 0.002, bottom + height / 2, panel.title, fontsize=12.5, fontweight="bold", color=_INK, va="center"
        )

    def card(self, panel: Panel) -> None:
        """The panel's ground, with its title."""
        left, bottom, width, height = self._box(panel)
        ground = FancyBboxPatch(
            (left, bottom), width, height, boxstyle="square,pad=0", facecolor=_CARD, edgecolor=_EDGE,
            transform=self.figure.transFigure, zorder=-1,
        )  # fmt: skip
        self.figure.add_artist(ground)
        top = bottom + height - 0.22 / self._height
        self.figure.text(left + 0.004, top, panel.title, fontsize=10, fontweight="bold", color=_INK, va="center")

    def axes(self, panel: Panel, *, below: float = _BOTTOM, left: float = _LEFT, top: float = _TOP) -> Any:
        """Axes over time within the card, with margins in inches."""
        x, y, width, height = self._box(panel)
        across = 24 * _COLUMN
        axes = self.figure.add_axes(
            (
                x + left / across,
                y + below / self._height,
                width - (left + _RIGHT) / across,
                height - (below + top) / self._height,
            )
        )
        axes.set_xlim(self.moments[0], self.moments[-1])
        axes.xaxis.set_major_locator(AutoDateLocator(maxticks=max(4, panel.place.width - 2)))
        axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
        axes.tick_params(length=0)
        return axes

    @property
    def moments(self) -> Any:
        """The times as matplotlib wants them."""
        return np.array(self.times, dtype="int64").astype("datetime64[s]")

    def values(self, series: Series) -> Any:
        """The series' value at each of the times, or NaN."""
        at = dict(series.points)
        return np.array([at.get(time, np.nan) for time in self.times])

    @property
    def _height(self) -> float:
        return self.rows * _UNIT + _HEADER

    def _box(self, panel: Panel) -> tuple[float, float, float, float]:
        place, across, down = panel.place, 24 * _COLUMN, self._height
        left = (place.x * _COLUMN + _GAP) / across
        bottom = 1 - (_HEADER + (place.y + place.height) * _UNIT - _GAP) / down
        return left, bottom, (place.width * _COLUMN - 2 * _GAP) / across, (place.height * _UNIT - 2 * _GAP) / down


def _graph(sheet: _Sheet, panel: Panel, named: Named) -> None:
    sheet.card(panel)
    labels = [_with_calculations(panel, name, values) for name, values in named]
    widest = _MARK + _LETTER * max(map(len, labels), default=0)
    entries = max(1, int(panel.place.width * _COLUMN / widest))
    lines = -(-len(named) // entries)
    axes = sheet.axes(panel, below=_BOTTOM + 0.08 + lines * _LEGEND_LINE)
    custom = panel.defaults.get("custom", {})
    is_logarithmic = custom.get("scaleDistribution", {}).get("type") == "log"
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    opacity = custom.get("fillOpacity", 0) / 100
    base = np.zeros(len(sheet.times))
    handles = []
    for index, (name, values) in enumerate(named):
        colour = _colour(panel, name, index)
        label = labels[index]
        if is_stacked:
            top = base + np.nan_to_num(values)
            if custom.get("drawStyle") == "bars":
                width = (sheet.moments[1] - sheet.moments[0]) * 0.8
                axes.bar(sheet.moments, top - base, width, bottom=base, color=colour, alpha=opacity)
            else:
                axes.fill_between(sheet.moments, base, top, color=colour, alpha=opacity, linewidth=0)
                axes.plot(sheet.moments, np.where(top > base, top, np.nan), color=colour, linewidth=1)
            base = top
            handles.append(Patch(color=colour, label=label))
        else:
            style = panel.overrides.get(name, {})
            dashes = style.get("custom.lineStyle", {}).get("fill") == "dash"
            (line,) = axes.plot(
                sheet.moments, values, color=colour, linewidth=1.6, linestyle="--" if dashes else "-", label=label
            )
            if not is_logarithmic:
                axes.fill_between(
                    sheet.moments, 0, values, color=colour, alpha=style.get("custom.fillOpacity", opacity), linewidth=0
                )
            handles.append(line)
    _value_axis(axes, panel.unit, is_logarithmic=is_logarithmic)
    if "thresholdsStyle" in custom:
        highest = axes.get_ylim()[1]
        for step in panel.defaults["thresholds"]["steps"]:
            # As in Grafana, a threshold far above all values does not compress them.
            if step["value"] is not None and step["value"] <= highest:
                axes.axhline(step["value"], color=_hex(step["color"]), linestyle="--", linewidth=1)
    below = -(_BOTTOM / (panel.place.height * _UNIT - _TOP - _BOTTOM - 0.18 - lines * _LEGEND_LINE))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.02, below), ncols=entries, borderaxespad=0, handlelength=1.2,
        columnspacing=1.5, labelcolor=_QUIET,
    )  # fmt: skip


def _number(sheet: _Sheet, panel: Panel, named: Named) -> None:
    sheet.card(panel)
    curve = sheet.axes(panel, below=0.04, left=0.06, top=1.25)
    curve.set_axis_off()
    text = sheet.axes(panel, below=0.1, left=0.06, top=0.3)
    text.set_axis_off()
    for index, (name, values) in enumerate(named):
        known = values[~np.isnan(values)]
        value = known[-1] if len(known) else np.nan
        steps = panel.overrides.get(name, {}).get("thresholds", panel.defaults["thresholds"])["steps"]
        reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
        shown, colour = _mapped(panel, value) or (_formatted(panel.unit)(value), reached[-1])
        curve.plot(sheet.moments, values, color=_hex(colour), linewidth=1)
        curve.fill_between(sheet.moments, 0, values, color=_hex(colour), alpha=0.15, linewidth=0)
        middle = (index + 0.5) / len(named)
        several = f"{name}\n" if len(named) > 1 else ""
        text.text(
            middle, 0.62, f"{several}{shown}", transform=text.transAxes, ha="center", va="center", fontsize=20,
            fontweight="bold", color=_hex(colour),
        )  # fmt: skip


def _timeline(sheet: _Sheet, panel: Panel, named: Named) -> None:
    sheet.card(panel)
    axes = sheet.axes(panel, below=_BOTTOM + 0.08 + _LEGEND_LINE, left=1.5)
    step = sheet.moments[1] - sheet.moments[0]
    states: dict[str, str] = {}
    for row, (_, values) in enumerate(named):
        for moment, value in zip(sheet.moments, values, strict=True):
            if found := _mapped(panel, value):
                states[found[0]] = _hex(found[1])
                axes.barh(-row, step, left=moment, height=0.8, color=states[found[0]], alpha=0.75, linewidth=0)
    axes.set_yticks([-row for row in range(len(named))], [name for name, _ in named])
    axes.set_ylim(-len(named) + 0.4, 0.6)
    axes.grid(visible=False)
    axes.legend(
        handles=[Patch(color=colour, label=name, alpha=0.75) for name, colour in states.items()], ncols=4, borderaxespad=0,
        loc="upper left", bbox_to_anchor=(0, -_BOTTOM / (panel.place.height * _UNIT - 1.1)), labelcolor=_QUIET,
    )  # fmt: skip


def _heat_map(sheet: _Sheet, panel: Panel, named: Named) -> None:
    sheet.card(panel)
    axes = sheet.axes(panel)
    buckets = sorted(named, key=lambda bucket: float(bucket[0]))
    # Each bucket includes the buckets below it.
    cells = np.diff(np.nan_to_num(np.array([values for _, values in buckets])), axis=0, prepend=0)
    cells[cells <= panel.options["filterValues"]["le"]] = np.nan
    colours = panel.options["color"]["scheme"]
    edges = np.append(sheet.moments, sheet.moments[-1] + (sheet.moments[1] - sheet.moments[0]))
    axes.pcolormesh(edges, np.arange(len(buckets) + 1), cells, cmap=colours, norm=PowerNorm(0.5, vmin=0))
    axes.set_yticks(range(1, len(buckets) + 1, 3), [_formatted(panel.unit)(float(bound)) for bound, _ in buckets[::3]])
    axes.set_xlim(edges[0], edges[-1])


def _value_axis(axes: Any, unit: str, *, is_logarithmic: bool) -> None:
    if is_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10))
        axes.yaxis.set_minor_formatter(NullFormatter())
        # A line that never leaves its decade still needs a bound above and below.
        low, high = axes.get_ylim()
        axes.set_ylim(10.0 ** np.floor(np.log10(low)), 10.0 ** np.ceil(np.log10(high)))
    else:
        highest = axes.dataLim.ymax
        axes.set_ylim(0, 1.05 * highest if np.isfinite(highest) and highest > 0 else 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 3, 5, 6, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _formatted(unit)(value)))


def _name(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{\s*(\w+)\s*}}", lambda label: labels.get(label[1], ""), template)


def _with_calculations(panel: Panel, name: str, values: Any) -> str:
    known = values[~np.isnan(values)]
    if not len(known):
        return name
    shown = _formatted(panel.unit)
    found = {"lastNotNull": f"last {shown(known[-1])}", "max": f"max {shown(known.max())}"}
    return "  ".join([name, *(found[each] for each in panel.options["legend"]["calcs"])])


def _mapped(panel: Panel, value: float) -> tuple[str, str] | None:
    for mapping in panel.defaults.get("mappings", []):
        of = mapping["options"]
        if value >= of["from"] and (of["to"] is None or value <= of["to"]):
            return of["result"]["text"], of["result"]["color"]
    return None


def _formatted(unit: str) -> Callable[[float], str]:
    if unit.startswith("suffix:"):
        return lambda value: _scaled(value, _SCALES["short"]) + unit.removeprefix("suffix:")
    if unit == "percentunit":
        return lambda value: _scaled(100 * value, _SCALES["short"]) + "%"
    return lambda value: _scaled(value, _SCALES[unit])


def _scaled(value: float, scales: Sequence[tuple[float, str]]) -> str:
    if np.isnan(value):
        return "no data"
    if value == 0 or np.isinf(value):
        return f"{value:g}"
    size, suffix = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    return f"{value / size:.3g}{suffix}"


def _colour(panel: Panel, name: str, index: int) -> str:
    fixed = panel.overrides.get(name, {}).get("color", {}).get("fixedColor")
    return _hex(fixed) if fixed else _OTHERS[index % len(_OTHERS)]


def _hex(colour: str) -> str:
    return colour if colour.startswith("#") else _NAMED[colour]
