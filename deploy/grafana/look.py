"""The appearance of panels, with one colour for each meaning.

`sections.py` contains their queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import heatmap as heatmap_builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common, dashboard, heatmap
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GOOD, WARN, BAD = "green", "orange", "red"
_QUIET = "#8e949c"

# By the name of a series in the legend. Green is a success, orange a retry, red a failure, and blue a measurement.
COLOURS = {
    "stored": GOOD, "unchanged": "blue", "erased": "light-purple", "skipped": "light-blue", "retried": WARN, "dead": BAD,
    "waiting": "blue", "pending": GOOD, "to be retried": WARN,
    "main": "blue", "express": "purple",
    "2xx": GOOD, "3xx": "light-green", "4xx": "yellow", "429": "purple", "5xx": BAD, "timeout": "dark-red", "error": WARN,
    "p50": "light-blue", "p95": "blue", "p99": "dark-blue", "mean": "blue",
    "in flight": GOOD, "limit": _QUIET,
    "idle": "yellow", "dead_consumer": BAD, "restart": WARN,
    "consumers": "blue", "oldest": "blue", "median": "blue",
}  # fmt: skip

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")

Graph = timeseries.Panel
Number = stat.Panel
Timeline = statetimeline.Panel
HeatMap = heatmap_builders.Panel
Panel = Graph | Number | Timeline | HeatMap
_AnyPanel = TypeVar("_AnyPanel", Graph, Number, Timeline, HeatMap)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the legend of its series, which may contain labels such as `{{code}}`."""

    expr: str
    legend: str
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES


@dataclass(frozen=True, slots=True)
class Levels:
    """The values from which a number is orange or red. They match the alerts."""

    warn: float | None = None
    bad: float | None = None

    def thresholds(self) -> dashboard_builders.ThresholdsConfig:
        """Green below all levels."""
        steps = [
            dashboard.Threshold(value=value, color=colour)
            for value, colour in ((self.warn, WARN), (self.bad, BAD))
            if value is not None
        ]
        return (
            dashboard_builders.ThresholdsConfig()
            .mode(dashboard.ThresholdsMode.ABSOLUTE)
            .steps([dashboard.Threshold(value=None, color=GOOD), *steps])
        )


@dataclass(frozen=True, slots=True)
class Words:
    """The title of a panel, and a description for a new operator.

    Attributes:
        unit: one of Grafana's, or `suffix:…`.
    """

    title: str
    description: str
    unit: str


def graph(words: Words, queries: Sequence[Query], width: int, *, levels: Levels | None = None) -> Graph:
    """Lines over time, with the last and the highest value in the legend, and dashed lines at the levels."""
    panel = _lines(words, queries, width).min(0)
    if levels:
        dashed = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(levels.thresholds()).thresholds_style(dashed)
    return panel


def logarithmic(words: Words, queries: Sequence[Query], width: int) -> Graph:
    """Lines on a logarithmic scale, for values from milliseconds to minutes."""
    scale = common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
    return _lines(words, queries, width).scale_distribution(scale).fill_opacity(0)


def stacked(words: Words, queries: Sequence[Query], width: int, *, parts: Sequence[str] = ()) -> Graph:
    """Stacked areas for the parts of a total.

    Args:
        words: of the panel.
        queries: one for each part, or one for all.
        width: columns.
        parts: the names of the parts, if one query gives them all.
    """
    panel = graph(words, queries, width).stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    return _coloured(panel.line_width(1).fill_opacity(55), parts)


def bars(words: Words, queries: Sequence[Query], width: int, *, parts: Sequence[str] = ()) -> Graph:
    """Stacked bars, for rare events."""
    return (
        stacked(words, queries, width, parts=parts)
        .draw_style(common.GraphDrawStyle.BARS)
        .fill_opacity(80)
        .legend(_legend(["max"]))
    )


def dashed(panel: Graph, name: str) -> Graph:
    """Draw the series with this name as a limit of the others."""
    style = common.LineStyle(fill="dash", dash=[8, 6])
    return panel.override_by_name(name, [_property("custom.lineStyle", style), _property("custom.fillOpacity", 0)])


def number(words: Words, queries: Sequence[Query], width: int, *, levels: Levels, no_value: str = "no data") -> Number:
    """The last value in large type, over a small graph of its history."""
    return (
        _common(stat.Panel(), words, queries, width)
        .height(4)
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard_builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
        .thresholds(levels.thresholds())
        .no_value(no_value)
    )


def timeline(words: Words, query: Query, width: int, *, states: Mapping[int, tuple[str, str]]) -> Timeline:
    """A row for each worker, coloured by its state.

    Args:
        words: of the panel.
        query: returns whole numbers.
        width: columns.
        states: name and colour, from each of these numbers up to the next.
    """
    return (
        _common(statetimeline.Panel(), words, [query], width)
        .height(5)
        .mappings(_ranges(states))
        .color_scheme(dashboard_builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
        .merge_values(merge_values=True)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .fill_opacity(75)
        .line_width(0)
        .legend(_legend([]))
        .tooltip(_tooltip())
    )


def heat_map(words: Words, expr: str, width: int, *, cell_unit: str) -> HeatMap:
    """The values in each bucket of a histogram over time. The unit of `words` is the unit of the buckets."""
    return (
        _common(heatmap_builders.Panel(), words, [Query(expr, "{{le}}", PromQueryFormat.HEATMAP)], width)
        .height(8)
        .calculate(calculate=False)
        .rows_frame(heatmap_builders.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO))
        .y_axis(heatmap_builders.YAxisConfig().unit(words.unit).axis_placement(common.AxisPlacement.LEFT))
        .cell_values(heatmap_builders.CellValues().unit(cell_unit))
        .color(
            heatmap_builders.HeatmapColorOptions()
            .mode(heatmap.HeatmapColorMode.SCHEME)
            .scheme("Greens")
            .scale(heatmap.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
        )
        # Buckets without orders stay empty.
        .filter_values(heatmap_builders.FilterValueRange().le(1e-9))
        .mode(common.TooltipDisplayMode.SINGLE)
        .show_legend()
    )


def in_words(panel: Number, states: Mapping[int, tuple[str, str]]) -> Number:
    """Show a word instead of the number, see `timeline`."""
    return panel.mappings(_ranges(states))


def with_levels(panel: Number, by_name: Mapping[str, Levels]) -> Number:
    """Set levels for single series, by name."""
    for name, levels in by_name.items():
        panel = panel.override_by_name(name, [_property("thresholds", levels.thresholds().build())])
    return panel


def _lines(words: Words, queries: Sequence[Query], width: int) -> Graph:
    panel = (
        _common(timeseries.Panel(), words, queries, width)
        .height(8)
        .draw_style(common.GraphDrawStyle.LINE)
        .line_width(2)
        .fill_opacity(8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(_legend(["lastNotNull", "max"]))
        .tooltip(_tooltip())
        .color_scheme(dashboard_builders.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    return _coloured(panel, [query.legend for query in queries])


def _coloured(panel: Graph, names: Sequence[str]) -> Graph:
    for name in names:
        if colour := COLOURS.get(name):
            panel = panel.override_by_name(name, [_property("color", {"mode": "fixed", "fixedColor": colour})])
    return panel


def _common(panel: _AnyPanel, words: Words, queries: Sequence[Query], width: int) -> _AnyPanel:
    panel.title(words.title).description(words.description).unit(words.unit).span(width).datasource(DATASOURCE)
    for letter, query in zip("ABCDEF", queries, strict=False):
        panel.with_target(
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend)
            .format(query.form)
            .range()
            .ref_id(letter)
            .datasource(DATASOURCE)
        )
    return panel


def _ranges(states: Mapping[int, tuple[str, str]]) -> list[dashboard.ValueMapping]:
    ends = [*list(states)[1:], None]
    return [
        dashboard.RangeMap(
            dashboard.DashboardRangeMapOptions(
                from_val=start,
                # A range includes both ends, and the states are whole numbers.
                to=None if end is None else end - 1,
                result=dashboard.ValueMappingResult(text=text, color=colour, index=index),
            )
        )
        for index, ((start, (text, colour)), end) in enumerate(zip(states.items(), ends, strict=True))
    ]


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def _legend(calculations: list[str]) -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(show_legend=True)
        .calcs(calculations)
    )


def _tooltip() -> common_builders.VizTooltipOptions:
    return common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
